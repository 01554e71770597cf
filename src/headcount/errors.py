"""The one exception that speaks to users."""


class InputError(ValueError):
    """Input that cannot be used: one sentence that names the place and the remedy.

    The command line prints the sentence and exits with code 2; library users catch a `ValueError`.
    """


class NoSolution(Exception):
    """A search that ended with a negative answer: one sentence that says how far it got (exit code 1)."""


class PreconditionWarning(UserWarning):
    """A theorem's precondition does not hold, so its guarantee does not either; the weights may still be right."""
