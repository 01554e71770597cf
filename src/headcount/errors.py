"""The one exception that speaks to users."""


class InputError(ValueError):
    """Input that cannot be used: one sentence that names the place and the remedy.

    The command line prints the sentence and exits with code 2; library users catch a `ValueError`.
    """
