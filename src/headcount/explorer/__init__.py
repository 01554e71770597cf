"""The explorer: one interactive page, and the fourth engine, in plain JavaScript."""
