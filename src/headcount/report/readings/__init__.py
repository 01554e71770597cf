"""Readings: what the runs say, read off the evidence once for claims, comparisons, sentences and tables."""
