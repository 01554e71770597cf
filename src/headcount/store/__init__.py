"""One SQLite store for all runs, and its export."""
