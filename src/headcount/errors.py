"""What headcount raises and warns with."""


class InputError(ValueError):
    """Input that cannot be used: one sentence that names the place and the remedy.

    The command line prints the sentence and exits with code 2; library users catch a `ValueError`.
    """


class NoSolution(Exception):
    """A search ended with a negative answer: one sentence says how far it got (exit code 1)."""


class PreconditionWarning(UserWarning):
    """A theorem's precondition fails, so nothing is guaranteed; weights may still be correct."""
