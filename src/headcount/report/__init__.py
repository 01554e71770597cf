"""The report: figures, claims and the page that shows them, and the charts of other commands."""
