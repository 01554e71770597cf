"""Sweep files, the threshold search, the runner and the cluster."""
