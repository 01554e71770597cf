"""The charts of the report: they compile, hold the evidence's numbers, and can be filtered."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import product
from math import exp, log2

import pandas as pd
import pytest
import vl_convert

from headcount.analysis.curves import curves
from headcount.analysis.laws import budget_fit, regular_fit
from headcount.analysis.thresholds import thresholds, thresholds_by_heads
from headcount.errors import InputError
from headcount.report.figures import FIGURES, figure
from headcount.reproduction.evidence import Evidence
from tests.made_evidence import BLOCK, World

BASE = [(64, 16), (64, 32), (128, 16), (128, 32), (256, 32)]
GRIDS = {  # variant, points, degrees
    "base": ("max", BASE, [1]),
    "diagonal": ("max", [(128, 16), (256, 32), (512, 64)], [1]),
    "extreme": ("max", [(512, 16)], [1]),
    "regular": ("max", [(128, 32)], [1, 2, 4]),
    "softmax": ("softmax", [(64, 32), (128, 32)], [1]),
    "value": ("value", [(64, 16), (64, 32)], [1]),
    "linear": ("sum", [(64, 16), (128, 32)], [1]),
}
DRAW = {figure.id: figure.draw for figure in FIGURES if figure.draw}
# Drawn from shipped results, not from the evidence: test_frontier.py, test_law_figures.py,
# test_shared_block.py.
SHIPPED = ("shared-block", "frontier", "law", "separability", "steps", "laws", "adviser")
SHIPPED += ("shared-keys", "relations", "limit")
ALL = pytest.mark.parametrize("name", [name for name in DRAW if name not in SHIPPED])


def _runs(grid: str, seeds: int = 2, heads: tuple[int, ...] = (1, 4, 8)) -> pd.DataFrame:
    """Runs of a grid: F1 rises with the budget; one head never passes where m ≥ 4·d_model."""
    variant, points, degrees = GRIDS[grid]
    rows = []
    for (items, d_model), degree, count, step, seed in product(
        points, degrees, heads, range(1, 7), range(seeds)
    ):
        need = degree * items * log2(items) / d_model
        key_dim = max(1, round(step * need / 4 / count))
        top = 0.7 if count == 1 and items >= 4 * d_model else 1.0
        value = top / (1 + exp(-10 * (count * key_dim / need - 0.4))) - 0.001 * seed
        split = {"heads": count, "key_dim": key_dim, "budget": count * key_dim, "seed": seed}
        point = {"variant": variant, "degree": degree, "items": items, "d_model": d_model}
        rows.append(point | split | {"value": value, "diverged": None})
    return pd.DataFrame(rows).drop_duplicates(
        ["degree", "items", "d_model", "heads", "budget", "seed"]
    )


def _evidence(**options) -> Evidence:
    runs = {grid: _runs(grid, **options) for grid in GRIDS}
    judged = {grid: frame for grid, frame in runs.items() if grid != "value"}
    seeds = {grid: frame["seed"].nunique() for grid, frame in runs.items()}
    bounds = [(64, 16, "lower bound", "margin", 2), (64, 16, "construction", "as printed", None)]
    bounds += [
        (64, 16, "construction", "pseudo-inverse", 64),
        (512, 64, "lower bound", "margin", 6),
    ]
    bounds = pd.DataFrame(bounds, columns=["items", "d_model", "kind", "name", "budget"]).assign(
        degree=1
    )
    return Evidence(
        pd.concat(
            [curves(frame).assign(grid=grid) for grid, frame in runs.items()], ignore_index=True
        ),
        pd.concat(
            [
                thresholds(frame).assign(grid=grid, runs=seeds[grid])
                for grid, frame in judged.items()
            ],
            ignore_index=True,
        ),
        pd.concat(
            [thresholds_by_heads(frame).assign(grid=grid) for grid, frame in judged.items()],
            ignore_index=True,
        ),
        bounds.astype({"budget": "Int64"}),
        block=World(block=BLOCK).evidence().block,
    )


@pytest.fixture(scope="module")
def full() -> Evidence:
    return _evidence()


@pytest.fixture(scope="module")
def reduced() -> Evidence:
    """One seed, one head count: no intervals, points that did not pass, one without curves."""
    whole = _evidence(seeds=1, heads=(1,))
    gone = (whole.curves["items"] == 128) & (whole.curves["d_model"] == 16)
    return replace(whole, curves=whole.curves.loc[~gone].reset_index(drop=True))


# Specs by figure and evidence, since Altair is slow to validate; the evidence is kept for its id.
_DRAWN: dict[tuple[str, int], tuple[Evidence, dict]] = {}


def _spec(name: str, evidence: Evidence, **signals: int) -> dict:
    key = (name, id(evidence))
    if key not in _DRAWN:
        _DRAWN[key] = (evidence, DRAW[name](evidence).to_dict())
    spec = deepcopy(_DRAWN[key][1])
    for param in spec["params"]:
        param["value"] = signals.get(param["name"])
    return spec


def _rows(spec: dict) -> pd.DataFrame:
    """The rows that the top level of a chart draws."""
    return pd.DataFrame(spec["datasets"][spec["data"]["name"]])


def _lines(spec: dict) -> pd.DataFrame:
    """The ends of the lines of laws."""
    return next(pd.DataFrame(rows) for rows in spec["datasets"].values() if "law" in rows[0])


def _marks(spec: dict, kind: str) -> int:
    """How many marks of a kind the drawn chart has, legends and titles apart."""

    def count(node: dict) -> int:
        if str(node.get("role", "")).startswith(("legend", "title", "axis")):
            return 0
        own = len(node["items"]) if node.get("marktype") == kind else 0
        return own + sum(count(child) for child in node.get("items", []))

    return count(vl_convert.vegalite_to_scenegraph(spec)["scenegraph"])


@ALL
@pytest.mark.parametrize("which", ["full", "reduced"])
def test_charts_are_drawn(name, which, request):
    spec = _spec(name, request.getfixturevalue(which))
    assert "<path" in vl_convert.vegalite_to_svg(spec)


def test_a_figure_is_drawn_by_its_name(full):
    drawn = figure("fig3", full)
    assert drawn.to_dict()["datasets"] == _spec("fig3", full)["datasets"]
    assert isinstance(figure("table1", full), pd.DataFrame)
    shipped = _rows(figure("fig4").to_dict())  # from the results that are shipped with headcount
    assert shipped["items"].tolist() == [128, 256, 512, 1024, 2048, 4096]
    with pytest.raises(InputError, match=r"did you mean 'fig3'\?\); choose from fig1, .*table2"):
        figure("figure3", full)


@ALL
def test_shapes_are_names(name, full):
    """Vega warns of shapes for values in an order."""

    def types(node: object) -> list[str]:
        if isinstance(node, list):
            return [found for part in node for found in types(part)]
        if not isinstance(node, dict):
            return []
        shape = node.get("encoding", {}).get("shape", {})
        own = [shape["type"]] if "type" in shape else []
        return own + [
            found for key, part in node.items() if key != "datasets" for found in types(part)
        ]

    assert set(types(_spec(name, full))) <= {"nominal"}


def test_the_marks_of_the_diagonal_stand_on_their_bars(full):
    marks = [layer["mark"] for layer in _spec("fig4", full)["layer"][0]["layer"]]
    assert [mark["type"] for mark in marks] == ["bar", "rule"]
    assert "xOffset" not in marks[1]
    assert "bars" not in str(_spec("fig4", full)["title"]["subtitle"])


@ALL
def test_nothing_to_draw_is_one_sentence(name, full):
    frames = {
        part: getattr(full, part).iloc[:0]
        for part in ("curves", "thresholds", "by_heads", "bounds")
    }
    with pytest.raises(InputError, match="nothing to draw"):
        DRAW[name](Evidence(**frames))


def test_curves_do_not_need_thresholds(full):
    bare = replace(full, thresholds=pd.DataFrame(columns=full.thresholds.columns))
    for name in ("fig1", "fig5", "fig9", "linear", "bounds"):
        assert len(_rows(_spec(name, bare)))


@ALL
def test_filters_stand_at_the_top_and_select(name, full):
    spec = _spec(name, full)
    names = [param["name"] for param in spec["params"]]
    assert names == (["m", "d_model_"] if name == "bounds" else ["m", "d_model_", "h"])
    assert [step["filter"] for step in spec["transform"]][:2] == [
        "m == null || datum.items == m",
        "d_model_ == null || datum.d_model == d_model_",
    ]
    assert all(param["value"] is None for param in spec["params"])


@pytest.mark.parametrize(
    ("name", "signals", "query"),
    [
        ("fig1", {"h": 4}, "heads == 4"),
        ("fig9", {"m": 64}, "items == 64"),
        (
            "fig9",
            {"m": 128, "d_model_": 32, "h": 8},
            "items == 128 and d_model == 32 and heads == 8",
        ),
        ("fig9", {"m": 7}, "items == 7"),
        ("fig6", {"d_model_": 32}, "d_model == 32"),
        ("fig3", {"d_model_": 16}, "d_model == 16"),
        ("fig2", {"m": 128}, "items == 128"),
        ("fig12", {"h": 8}, "heads == 8"),
    ],
)
def test_filters_leave_the_points_that_they_name(name, signals, query, full):
    spec = _spec(name, full, **signals)
    assert _marks(spec, "symbol") == len(_rows(spec).query(query))


def test_curves_are_those_of_the_evidence(full):
    ours = full.on("base", items=256, d_model=32)
    drawn = _rows(_spec("fig1", full))
    assert drawn[["heads", "budget", "mean", "low", "high", "runs"]].to_numpy() == pytest.approx(
        ours[["heads", "budget", "mean", "low", "high", "runs"]].to_numpy()
    )
    assert (drawn["heads"] * drawn["key_dim"] == drawn["budget"]).all()
    panels = {
        name: _rows(_spec(name, full))["panel"].nunique()
        for name in ("fig5", "fig6", "fig9", "fig11", "linear")
    }
    assert panels == {"fig5": 2, "fig6": 2, "fig9": len(BASE), "fig11": 2, "linear": 4}


def test_softmax_panels_show_the_threshold_of_max(full):
    stars = _rows(_spec("fig5", full)).groupby(["items", "d_model"])["star"].first()
    known = full.on("base", "thresholds").set_index(["items", "d_model"])["central"]
    assert stars.to_dict() == {point: known[point] for point in stars.index}


def test_fig3_holds_the_thresholds_and_the_lines(full):
    spec = _spec("fig3", full)
    table = full.law_points()
    drawn = _rows(spec)
    assert drawn["central"].tolist() == table["central"].tolist()
    assert drawn["low"].tolist() == table["optimistic"].tolist()
    assert drawn["high"].tolist() == table["conservative"].tolist()
    assert drawn["x"].tolist() == pytest.approx(
        [m * log2(m) / d for m, d in zip(table["items"], table["d_model"], strict=True)]
    )
    ends = _lines(spec).assign(slope=lambda rows: rows["height"] / rows["end"])
    expected = [budget_fit(table).slope, budget_fit(table, wide=True).slope, 1.19, 0.966]
    assert ends["slope"].tolist() == pytest.approx([slope for slope in expected for _ in range(2)])


def test_other_laws_are_drawn_from_their_fits(full):
    ends = _lines(_spec("fig12", full)).drop_duplicates("law")
    slopes = (ends["height"] / ends["end"]).tolist()
    assert slopes == pytest.approx([regular_fit(full.on("regular", "thresholds")).slope, 0.46])
    paper = _lines(_spec("fig10", full)).iloc[-1]
    assert paper["height"] == pytest.approx(1.65 * paper["end"] - 6.64)


def test_too_few_points_leave_the_papers_line_alone(full):
    one = full.thresholds["items"] == 64
    spec = _spec("fig10", replace(full, thresholds=full.thresholds.loc[one]))
    assert [name.split(":")[0] for name in _lines(spec)["law"].unique()] == ["paper"]


def test_the_diagonal_and_the_table_join_grids(full):
    assert _rows(_spec("fig4", full))["items"].tolist() == [128, 256, 512]
    cells = _rows(_spec("fig8", full))
    assert sorted(zip(cells["items"], cells["d_model"], strict=True)) == sorted(
        {*BASE, (512, 64), (512, 16)}
    )
    first = full.on("base", "thresholds").iloc[0]
    texts = [first[name] for name in ("central", "optimistic", "conservative")]
    assert cells.loc[0, ["middle", "lower", "upper"]].tolist() == [str(number) for number in texts]


def test_what_did_not_pass_is_marked(reduced):
    """One head fails at (64, 16): an arrow for D_K*, a cross for h*, a cell that says so."""
    tested = reduced.on("base", items=64, d_model=16)["budget"].max()
    drawn = _rows(_spec("fig3", reduced)).query("items == 64 and d_model == 16").iloc[0]
    assert pd.isna(drawn["central"])
    found = drawn[["open", "low", "high", "interval"]].tolist()
    assert found == [True, tested, tested, f"> {tested}"]
    no_curves = _rows(_spec("fig3", reduced)).query("items == 128 and d_model == 16").iloc[0]
    assert no_curves["interval"] == "none"
    marks = {"fig3": "arrow", "fig12": "arrow"} | dict.fromkeys(["fig2", "fig10", "fig13"], "cross")
    for name, mark in marks.items():
        assert mark in str(_spec(name, reduced)["title"]["subtitle"]), name
    cell = _rows(_spec("fig8", reduced)).query("items == 64 and d_model == 16").iloc[0]
    assert cell[["middle", "lower", "upper"]].tolist() == ["none", "", f"> {tested}"]


def test_bounds_holds_all_three_kinds(full):
    drawn = _rows(_spec("bounds", full)).query("items == 64")
    trained = full.on("base", "thresholds", items=64, d_model=16)["central"][0]
    budgets = drawn.set_index("name")["budget"]
    assert budgets.dropna().to_dict() == {
        "margin": 2,
        "pseudo-inverse": 64,
        "trained D_K*": trained,
    }
    assert pd.isna(budgets["as printed"])
