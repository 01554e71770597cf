"""Readings that several figures share: what the runs say, read off the evidence."""
