"""`reproduce`, the report (figures, claims, page), and the charts of other commands."""
