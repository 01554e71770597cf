"""Analysis: from finished runs to curves, thresholds D_K*, head counts h* and fitted laws (Appendix A.2)."""
