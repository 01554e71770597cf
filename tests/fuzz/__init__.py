"""Fuzzers: random cases against plain references, each repeatable by its seed.

`make fuzz` runs them for a minute, and for `FUZZ_SECONDS` where that is set; `make test` for a
moment. A case is a function of a random generator; it raises where headcount is wrong. What a
failure looked like becomes a file in `corpus/`, which `corpus.py` writes.
"""
