"""Experiments: the paper's grids and numbers as data, and the sweeps that run them (Sections 6, 7, Appendix A)."""
