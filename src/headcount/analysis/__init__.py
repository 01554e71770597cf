"""From finished runs to curves, thresholds D_K*, head counts h* and laws (Appendix A.2)."""
