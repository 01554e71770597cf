"""The paper's explicit constructions (Section 4, Section 8, Appendix B) over one template."""
