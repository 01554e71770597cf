"""Engines that train fleets of runs: torch (the reference), native (C++) and triton (CUDA)."""
