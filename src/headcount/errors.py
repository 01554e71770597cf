"""Errors and warnings that are written for users."""


class InputError(ValueError):
    """Input that cannot be used: one sentence that names the place and the remedy.

    The command line prints the sentence and exits with code 2; library users catch a `ValueError`.
    """


class NoSolution(Exception):
    """A search that found nothing: one sentence that says how far it got (exit code 1)."""


class PreconditionWarning(UserWarning):
    """A theorem's precondition does not hold: the weights may be correct, but without guarantee."""
