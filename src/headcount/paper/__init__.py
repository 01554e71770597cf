"""The paper as data: its grids, its tables, and every number it reports."""
