"""Write the sweep files of this preregistration: python preregistrations/capacity-law-2/draw.py"""

from __future__ import annotations

from pathlib import Path

from headcount.theory.capacity_law import items_held

HERE = Path(__file__).parent
NEAR = (0.8, 0.87, 0.93, 0.97, 1.0, 1.03, 1.07, 1.15)
BELOW = (0.88, 0.91, 0.94, 0.97)


def grid(d_model: int, factors, steps: int, degree: int, graph="regular", table="gaussian") -> str:
    """One head of full width, items at multiples of what the law says that it holds."""
    predicted = items_held(d_model, 1, d_model, degree)
    return "\n".join(
        f"[[grid]]\npoints = [[{items}, {d_model}]]\nheads = [1]\nkey_dim = [{d_model}]\n"
        f'degree = [{degree}]\ngraph = "{graph}"\ntable = "{table}"\n'
        f"seeds = [300, 301, 302, 303]\nsteps = {steps}\ncheck_every = 2000\n"
        for items in sorted({round(predicted * factor) for factor in factors})
    )


def write(name: str, about: str, tables: list[str]) -> None:
    text = f'# {about}\n# Written by draw.py.\nengine = "triton"\n\n' + "\n".join(tables)
    (HERE / f"{name}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(
        "h-graphs",
        "One head of full width on random and skewed graphs.",
        [
            grid(32, NEAR, 1_000_000, degree, graph)
            for graph in ("random", "skewed")
            for degree in (2, 4, 8)
        ],
    )
    write(
        "i-tables",
        "One head of full width on binary tables.",
        [
            grid(d_model, NEAR, 1_000_000, degree, table="binary")
            for d_model in (24, 32)
            for degree in (1, 4)
        ],
    )
    write(
        "j-longer",
        "One head of full width at larger d_model, with more steps.",
        [grid(48, BELOW, 5_000_000, 1), grid(64, BELOW, 5_000_000, 1)],
    )
