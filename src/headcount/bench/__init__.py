"""Benchmarks: engines, blocks, verification, contexts and packing, with peers in the same run."""
