"""The capacity law: its formulas against plain integration, and its verdicts in the documents."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from headcount import InputError
from headcount.analysis.transitions import bootstrap, bracket, fit_slowing, with_ratio
from headcount.report.figures import figure, law
from headcount.reproduction.adviser_verdicts import adviser_verdicts
from headcount.reproduction.law_verdicts import (
    deviations,
    law_runs,
    measured_intervals,
    verdicts,
)
from headcount.reproduction.refined_verdicts import law_verdicts, refined_verdicts
from headcount.reproduction.shipped import measured_evidence
from headcount.theory.capacity_law import (
    degrees_of_freedom,
    freedom_needed,
    gardner_capacity,
    items_at_ratio,
    items_held,
)

ROOT = Path(__file__).parent.parent


def plain_capacity(rate: float) -> float:
    """Gardner's formula with its Gaussian integrals done numerically."""

    def mean_square(cut: float) -> float:
        return quad(lambda z: (cut + z) ** 2 * norm.pdf(z), -cut, 40)[0]

    found = minimize_scalar(
        lambda cut: rate * mean_square(cut) + (1 - rate) * mean_square(-cut),
        bounds=(-2, 8),
        method="bounded",
    )
    return 1 / found.fun


@pytest.mark.parametrize("rate", [0.5, 0.3, 0.1, 1 / 64, 1 / 1024])
def test_the_capacity_is_gardners(rate):
    assert gardner_capacity(rate) == pytest.approx(plain_capacity(rate), rel=1e-5)


def test_cover_and_the_sparse_limit():
    assert gardner_capacity(0.5) == 2
    rates = np.array([1e-3, 1e-6, 1e-12])
    shares = [gardner_capacity(rate) * 2 * rate * np.log(1 / rate) for rate in rates]
    assert shares == sorted(shares, reverse=True)  # falls towards 1
    assert 1 < shares[-1] < 1.3


@settings(deadline=None)
@given(st.floats(1e-6, 0.5))
def test_labels_may_be_exchanged(rate):
    assert gardner_capacity(rate) == pytest.approx(gardner_capacity(1 - rate), rel=1e-6)


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 16), st.integers(1, 6))
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(d_model, key_dim, heads):
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, d_model, key_dim))
    # Columns: the derivatives of W_Q W_Kᵀ by every entry of W_Q and of W_K.
    by_query = np.einsum("ab,ck->acbk", np.eye(d_model), key).reshape(d_model**2, -1)
    by_key = np.einsum("ak,cb->acbk", query, np.eye(d_model)).reshape(d_model**2, -1)
    rank = np.linalg.matrix_rank(np.hstack([by_query, by_key]))
    assert degrees_of_freedom(d_model, heads, key_dim) == heads * rank


def test_shared_keys_have_fewer_degrees_of_freedom():
    assert degrees_of_freedom(8, 4, 3, kv_heads=4) == degrees_of_freedom(8, 4, 3)
    assert degrees_of_freedom(8, 4, 3, kv_heads=1) == 8 * 5 * 3 - 9
    with pytest.raises(InputError, match="3 key heads do not divide 4 heads"):
        degrees_of_freedom(8, 4, 3, kv_heads=3)


@settings(deadline=None)
@given(st.integers(4, 64), st.integers(1, 8), st.floats(0.7, 2), st.integers(1, 4))
def test_the_items_at_a_ratio_have_that_ratio(d_model, heads, ratio, degree):
    items = items_at_ratio(d_model, heads, d_model, ratio, degree)
    needed = items**2 / gardner_capacity(degree / items)
    assert degrees_of_freedom(d_model, heads, d_model) / needed == pytest.approx(ratio, rel=1e-6)


def test_the_predictions_that_the_test_was_built_on():
    assert [round(items_held(d, 1, d)) for d in (16, 24, 32)] == [57, 108, 173]
    assert round(freedom_needed(256, 256)) == 1654


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: gardner_capacity(0), "must be strictly between 0 and 1"),
        (lambda: freedom_needed(4, 16), "at least one edge and one non-edge"),
        (lambda: degrees_of_freedom(0, 1, 1), "must be at least 1"),
        (lambda: with_ratio(pd.DataFrame({"items": [1]})), "lack the columns"),
        (lambda: fit_slowing({}), "nothing to fit"),
    ],
)
def test_bad_sizes_get_a_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


def test_a_made_slowing_is_found():
    rng = np.random.default_rng(0)
    groups = {}
    for name, critical in (("one", 0.9), ("two", 1.05)):
        ratio = np.repeat(np.linspace(critical + 0.05, 1.6, 12), 3)
        steps = 3000 * (ratio - critical) ** -1.4 * np.exp(rng.normal(0, 0.03, ratio.size))
        groups[name] = pd.DataFrame({"ratio": ratio, "steps": steps, "succeeded": True})
    found = fit_slowing(groups)
    assert found.exponent == pytest.approx(1.4, abs=0.1)
    assert found.critical["one"] == pytest.approx(0.9, abs=0.02)
    assert found.critical["two"] == pytest.approx(1.05, abs=0.02)

    resampled = bootstrap(groups, 5)
    assert list(resampled) == ["one", "two"]
    assert resampled["one"].between(0.85, 0.95).all()
    assert resampled["one"].nunique() == 5


def test_a_resample_may_leave_a_group_without_successes():
    ratio = np.repeat(np.linspace(1.05, 1.6, 8), 3)
    steps = 3000 * (ratio - 0.9) ** -1.4
    whole = pd.DataFrame({"ratio": ratio, "steps": steps, "succeeded": True})
    rare = whole.assign(succeeded=np.arange(len(whole)) % 8 == 1)  # one of three, three times
    found = bootstrap({"whole": whole, "rare": rare}, 12)
    assert found["whole"].notna().all()
    assert 0 < found["rare"].notna().sum() < 12


def test_the_shipped_intervals_hold_the_extrapolated_transitions():
    """At least 95 of 100 would; the 200 resamples take minutes, so they are shipped."""
    table = measured_intervals().set_index(["part", "group"])
    found = {(part, name): v for part in "abdh" for name, v in deviations(part).items()}
    assert set(table.index) == set(found)
    inside = [
        table.loc[key, "low"] <= value <= table.loc[key, "high"] for key, value in found.items()
    ]
    assert sum(inside) >= len(found) - 1


def test_a_bracket_needs_every_larger_ratio_to_pass():
    rows = {"ratio": [0.9, 1.0, 1.1, 1.2], "value": [0.5, 1.0, 0.9, 1.0]}
    group = pd.DataFrame({**rows, "succeeded": [False, True, False, True]})
    found = bracket(group)
    assert (found.fails_at, found.passes_from) == (1.1, 1.2)
    assert found.meets(1.0, 1.15)
    assert not found.meets(0.5, 1.0)


def test_the_preregistered_runs_are_all_there():
    """2,140 runs: every run of parts a to f and h to j, with the seeds of the sweep files."""
    from headcount.sweeps.file import read_sweep

    wanted = set()
    for path in (ROOT / "preregistrations").glob("capacity-law*/[a-fhij]-*.toml"):
        for spec in read_sweep(path).runs:
            size = (spec.variant, spec.degree, spec.items, spec.d_model, spec.heads, spec.key_dim)
            wanted.add((path.name[0], spec.graph, spec.table, *size, spec.seed, spec.steps))
    columns = ["part", "graph", "table", "variant", "degree", "items", "d_model"]
    columns += ["heads", "key_dim", "seed", "limit"]
    assert len(wanted) == len(law_runs()) == 2140
    assert set(law_runs()[columns].itertuples(index=False, name=None)) == wanted


def test_the_documents_give_the_verdicts_of_the_rules():
    text = (ROOT / "docs/law.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (.+) \| (confirmed|partly|refuted) \| (.+) \|$", text, re.M)
    told = [*verdicts(), *refined_verdicts(), *adviser_verdicts()]
    assert rows == [(one.part, one.hypothesis, one.verdict, one.number) for one in told]
    assert law_verdicts()["numbers"].tolist() == [one.number for one in told]


def test_the_figure_shows_every_configuration_under_max():
    chart = figure("law").to_dict()
    (rows,) = chart["datasets"].values()
    runs = law_runs()
    shown = runs[(runs["variant"] == "max") & runs["ratio"].between(0.7, 1.85)]
    assert sum(row["runs"] for row in rows) == len(shown)
    assert [row["verdict"] for row in law.table(measured_evidence()).to_dict("records")] == [
        one.verdict for one in verdicts()
    ]


def test_the_figure_belongs_to_the_shipped_results(tmp_path):
    made = replace(measured_evidence(), provenance={"preset": "quick"})
    with pytest.raises(InputError, match="not measured by the preset “quick”"):
        law.draw(made)
    assert "not part of this reproduction" in law.meaning(made)
