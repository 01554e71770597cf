"""Training: the protocol of Appendix A.1 and its variants, and the engines that run thousands of runs at once."""
