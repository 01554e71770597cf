"""How `plan` and `bounds` write families, numbers and tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log10

from headcount.cli.streams import plain, prints_unicode

_WIDEST = 1000  # columns that a table may ask for


def describe(items: int, edges: int, family: str, max_degree: int | None, bits: float) -> str:
    """Name a family of graphs and its bits in a few words.

    >>> describe(1000, 999, "bounded", 1, 8538), describe(64, 99, "bounded", 4, 812)
    ('partial permutations of 1,000 items with 999 edges (8,538 bits or more)',
     'graphs on 64 items with 99 edges and degrees up to 4 (812 bits or more)')
    """
    partial = f"partial permutations of {items:,} items with {edges:,} edges"
    names = {
        "permutation": f"permutations of {items:,} items",
        "regular": f"regular graphs on {items:,} items with {edges:,} edges",
        "graph": f"graphs on {items:,} items with {edges:,} edges",
        "bounded": f"graphs on {items:,} items with {edges:,} edges and degrees up to {max_degree}",
    }
    name = partial if family == "bounded" and max_degree == 1 else names[family]
    return f"{name} ({short(bits)} bits{' or more' if family in ('regular', 'bounded') else ''})"


def short(value: float) -> str:
    """Write a number in few characters: 45.6 k, 3.8 M.

    >>> short(8192), short(45_569), short(51_601_981_441)
    ('8,192', '45.6 k', '51.6 G')
    """
    units = ("", " k", " M", " G", " T")
    power = 0 if value < 10_000 else min(int(log10(value) / 3), len(units) - 1)
    return f"{value / 1000**power:,.{min(power, 1)}f}{units[power]}"


def budget_cell(sign: str, budget: float, sure: bool = True) -> str:
    """Write a bound on D_K; in brackets where its theorem does not vouch for it.

    >>> budget_cell("≤", 1072), budget_cell("≤", 712, sure=False), budget_cell("≥", float("inf"))
    ('≤ 1,072', '(712)', 'impossible')
    """
    if budget == inf:
        return "impossible"
    return f"{sign} {budget:,}" if sure else f"({budget:,})"


def print_table(
    title: str,
    advice: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[tuple[str, str]] = (),
) -> None:
    """Print what was asked, the answer in one sentence, the table, and what each row assumes.

    On a terminal that is too narrow for the table, its lines are wider than the terminal: what is
    wrapped there can be read, what is cut cannot.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.table import Table

    console = Console(highlight=False)
    written = str if prints_unicode() else plain  # as it is printed, or columns slip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    cells = [[written(cell) for cell in row] for row in (columns, *rows)]
    for number, (name, *column) in enumerate(zip(*cells, strict=True)):
        wraps = name == "assumes"
        lines = [line for cell in (name, *column) for line in cell.splitlines()]
        table.add_column(
            name,
            justify="left" if number == 0 or wraps else "right",
            no_wrap=not wraps,
            min_width=None if wraps else max(map(cell_len, lines)),
        )
    for row in cells[1:]:
        table.add_row(*row)
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).minimum
    console.width = max(console.width, needed)
    console.print(title, style="dim", markup=False)
    console.print(advice, style="bold", markup=False)
    if rows:
        console.print(table)
    for name, text in notes:
        console.print(Padding(f"{name}: {text}", (0, 0, 0, 2)), style="dim", markup=False)
