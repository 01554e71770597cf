"""`python -m headcount`."""

from headcount.cli import main

main()
