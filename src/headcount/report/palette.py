"""Colours, shapes and dashes of the charts, which survive grey printing, and their font."""

from __future__ import annotations

# Okabe–Ito; grey stands for its yellow, which is too pale for a line on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#777777")
SHAPES = (
    *("circle", "square", "triangle-up", "diamond"),
    *("cross", "triangle-down", "triangle-right", "triangle-left"),
)
DASHES = ([1, 0], [7, 2], [3, 2], [8, 2, 2, 2], [12, 2], [5, 3], [2, 2], [9, 3, 2, 3])
INK, GREY, PALE = "#222222", "#6e6e6e", "#d0d0d0"
FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
