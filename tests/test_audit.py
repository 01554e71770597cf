"""The audit: spectra beside random weights, overlap, tables, redundancy, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount as hc
from headcount.auditing.channel import Channel
from headcount.auditing.compressibility import (
    RANDOM_HEADS,
    compiled_columns,
    kept_choices,
    shared_time,
)
from headcount.auditing.opening import open_model
from headcount.auditing.redundancy import (
    THRESHOLDS,
    greedy_removal,
    measured_removal,
    removal_of_choices,
    removal_of_weights,
)
from headcount.auditing.result import FRAMES
from headcount.auditing.spectra import (
    energy_rank,
    entropy_rank,
    overlap,
    random_values,
    singular_values,
)
from headcount.auditing.token_rows import compared_rows, rows_reading, sampled_ids
from headcount.report.audit_texts import overlap_text, removal_text

from .made_models import BIASED, D_MODEL, FAMILIES, HEADS, LAYERS, WORDS, drawn, write_model

FAST = {"permutations": 19, "random_heads": 5, "compile_seconds": 0, "compress_seconds": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in the layout of Llama, and a relation among its words."""
    folder = write_model(tmp_path_factory.mktemp("model"), "llama", drawn("llama"))
    graph = hc.permutation_graph(60, seed=1)
    pairs = [(WORDS[a], WORDS[b]) for a, b in graph.pairs.tolist()]
    hc.write_graph(hc.as_graph(pairs), folder / "mine.csv")
    return folder


@pytest.fixture(scope="module")
def found(folder):
    options = FAST | {"compress_seconds": 1}
    return hc.audit(folder, relations=[folder / "mine.csv"], **options)


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(6, 12))
@settings(deadline=None, max_examples=40)
def test_singular_values_are_those_of_the_whole_form(seed, width, rows):
    query, key = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(seed)).double()
    expected = torch.linalg.svdvals(query @ key.T)[:width]
    torch.testing.assert_close(singular_values(query, key), expected)
    shares = expected / expected.sum()
    rank = float(torch.exp(-(shares * shares.log()).sum()))
    assert float(entropy_rank(expected)) == pytest.approx(rank)
    kept = int(energy_rank(expected))
    energy = expected.square() / expected.square().sum()
    assert energy[:kept].sum() >= 0.9 - 1e-9
    assert kept == 1 or energy[: kept - 1].sum() < 0.9


def test_random_weights_have_the_known_ranks():
    """Of d_model 384 and d_k 32 the entropy rank is 31.3; more rows bring it closer to d_k."""
    values = random_values(384, 32, draws=20)
    assert float(entropy_rank(values).mean()) == pytest.approx(31.3, abs=0.1)
    assert float(entropy_rank(random_values(3840, 32, draws=5)).mean()) > 31.9
    assert torch.equal(values, random_values(384, 32, draws=20))


def plain_channel(queries, keys):
    return Channel(
        queries, keys, *(torch.zeros(len(part), part.shape[2]) for part in (queries, keys))
    )


@given(st.integers(0, 10**6), st.sampled_from([(4, 4), (4, 2), (3, 1)]))
@settings(deadline=None, max_examples=20)
def test_overlaps_are_those_of_projections(seed, counts):
    heads, groups = counts
    stream = torch.Generator().manual_seed(seed)
    queries = torch.randn(heads, 9, 3, generator=stream)
    keys = torch.randn(groups, 9, 3, generator=stream)
    shared = overlap(plain_channel(queries, keys))
    keys = keys.repeat_interleave(heads // groups, 0)
    forms = queries @ keys.transpose(1, 2)
    for a in range(heads):
        for b in range(heads):
            left, right = (part[b] @ torch.linalg.pinv(part[b]) for part in (queries, keys))
            whole = forms[a].square().sum()
            expected = (left @ forms[a]).square().sum() / whole
            assert float(shared.queries[a, b]) == pytest.approx(float(expected), abs=1e-3)
            expected = (forms[a] @ right).square().sum() / whole
            assert float(shared.keys[a, b]) == pytest.approx(float(expected), abs=1e-3)
            cosine = (forms[a] * forms[b]).sum() / (forms[a].norm() * forms[b].norm())
            assert float(shared.forms[a, b]) == pytest.approx(float(cosine), abs=1e-3)


def test_random_heads_overlap_by_the_share_of_their_width():
    stream = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 40, 60, 6, generator=stream)
    shared = overlap(plain_channel(queries, keys))
    others = ~torch.eye(40, dtype=torch.bool)
    assert float(shared.queries[others].mean()) == pytest.approx(6 / 60, abs=0.005)
    assert float(shared.forms[others].mean()) == pytest.approx(0, abs=0.01)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_kept_choices_are_those_of_cut_scores(seed):
    query, key = torch.randn(2, 15, 5, generator=torch.Generator().manual_seed(seed)).double()
    query = query * torch.tensor([8.0, 4.0, 1.0, 0.1, 0.01])
    scores = query @ key.T
    left, values, right = torch.linalg.svd(scores)
    for rank, share in enumerate(kept_choices(query, key).tolist(), 1):
        cut = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert share == pytest.approx(float((cut.argmax(1) == scores.argmax(1)).double().mean()))


@pytest.mark.usefixtures("counted_time")
def test_compiled_columns_make_the_choices_of_a_head():
    stream = torch.Generator().manual_seed(0)
    rows = torch.cat([torch.randn(40, 11, generator=stream), torch.ones(40, 1)], dim=1)
    query, key = (rows @ torch.randn(12, 8, generator=stream) for _ in range(2))
    assert compiled_columns(torch.ones(40, 8), key, rows, seconds=30) <= 2  # one word for all
    assert 1 <= compiled_columns(query, key, rows, seconds=3) < 8
    assert compiled_columns(query, key, torch.ones(40, 12), seconds=5) == 8  # equal rows: its own


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.01, 500))
@settings(deadline=None)
def test_heads_that_are_compiled_keep_to_the_time_in_all(layers, heads, seconds):
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    chosen, each = shared_time(places, seconds)
    assert chosen <= set(places)
    assert each * (len(chosen) + RANDOM_HEADS) == pytest.approx(seconds)
    assert len(chosen) == 1 or each >= 4
    touched = {layer for layer, _ in chosen}
    assert len(touched) >= min(layers, len(chosen)) - 1  # spread over the layers
    assert shared_time(places, 0) == (frozenset(), 0.0)


def test_compiled_columns_stand_beside_those_of_random_heads(found):
    columns, width = found.heads["compiled_columns"].dropna(), found.sizes.key_dim
    assert len(columns) == 1  # a second is too short for more
    assert columns.between(1, width).all()
    assert 1 <= found.random["compiled_columns"] <= width
    assert 1 <= found.random["kept_rank_90"] <= found.random["kept_rank"] <= width
    assert 1 <= found.random["chosen_words"] <= len(WORDS)


def test_a_table_is_compared_with_a_gaussian_one():
    leaning = hc.gaussian_embeddings(200, 32, seed=0) + 0.3
    frame = compared_rows(leaning)
    assert list(frame["table"]) == ["model", "model, mean removed", "Gaussian"]
    own, centred, gaussian = (frame.iloc[place] for place in range(3))
    assert own["mean_cosine"] > 0.5 > 0.1 > abs(centred["mean_cosine"])
    assert own["participation"] < centred["participation"]
    assert own["leakage"] > 2 * gaussian["leakage"]
    eye = rows_reading(torch.eye(16), "one-hot")
    assert (eye.theorem_block, eye.margin_block, eye.leakage) == (16, 16, 0)


def test_greedy_removal_finds_a_head_that_adds_nothing():
    graph, table = hc.permutation_graph(24, seed=0), hc.gaussian_embeddings(24, 8, seed=0)
    weights = hc.compile(graph, table, budget=8, heads=2).weights
    pairs = [(weights.queries[head], weights.keys[head]) for head in (0, 1, 1)]
    twice = hc.KeyQuery.from_heads(pairs, weights.threshold)
    left = removal_of_weights(twice, graph, table)
    assert left[1:] == [1.0, 1.0]
    assert left[0] < 1
    assert left[0] == max(
        hc.verify(hc.KeyQuery.from_heads([pair], weights.threshold), graph, table).f1
        for pair in pairs
    )


def test_removal_of_choices_counts_pairs():
    chosen = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 2, 1]])
    assert removal_of_choices(chosen) == pytest.approx([3 / 5, 1.0, 1.0])
    assert greedy_removal(1, lambda kept: 0.25) == [0.25]


def test_the_shipped_study_has_every_ratio():
    frame = measured_removal()
    assert set(frame["kind"]) == set(THRESHOLDS)
    assert set(frame["ratio"]) == {1.0, 1.5, 2.0}
    whole = frame[frame["kept"] == frame["heads"]]
    assert (whole["left"] > 0.95).all()
    assert (frame.groupby(["kind", "ratio"])["left"].diff().dropna() >= -0.02).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_audited(family, tmp_path):
    found = hc.audit(write_model(tmp_path, family, drawn(family)), relations=[], **FAST)
    assert len(found.heads) == LAYERS * HEADS
    width = found.sizes.key_dim
    assert found.heads["entropy_rank"].between(1, width).all()
    assert found.heads["kept_rank"].between(1, width).all()
    assert found.heads["query_overlap"].between(0, 1).all()
    sums = found.spectra.groupby(["layer", "head"])["energy"].sum()
    assert np.allclose(sums, 1)
    assert found.removal.groupby("layer")["left"].last().eq(1).all()
    assert found.random["overlap"] == width / (D_MODEL + (family in BIASED))


def test_keys_that_are_shared_are_not_compared(tmp_path):
    found = hc.audit(
        write_model(tmp_path, "gemma3_text", drawn("gemma3_text")), **FAST | {"relations": []}
    )
    assert found.heads["key_overlap"].isna().all()  # one key head for all
    assert found.summary()["key_overlap"] is None
    assert "all heads share one key" in overlap_text(found)
    assert any("share each key head" in note for note in found.notes)
    assert any("normalises each head's queries and keys" in note for note in found.notes)
    assert any(note.endswith("Random heads do not.") for note in found.notes)


def test_a_post_norm_model_says_whose_rows_its_relations_are_compared_on(tmp_path):
    folder, graph = write_model(tmp_path, "bert", drawn("bert")), hc.permutation_graph(60, seed=1)
    for layers, said in (([0], False), ([1], True)):
        found = hc.audit(folder, layers=layers, relations=[graph], **FAST)
        assert any("use the first layer's rows" in note for note in found.notes) == said


def test_an_audit_is_written_as_tables_and_a_page(found, tmp_path):
    page = found.save(tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    assert f"<h1>What the key–query channels of {found.model} hold</h1>" in text
    for title in ("Shape and capacity", "Spectra", "Overlap between heads", "Redundancy"):
        assert f">{title} <" in text
    assert "Layers after the first are on the direct path" in text
    assert "1 of 12 heads were compiled" in text
    for name in FRAMES:
        frame = getattr(found, name)
        written = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
        assert len(written) == len(frame)
        assert list(pd.read_csv(tmp_path / "out" / f"{name}.csv").columns) == list(frame.columns)
    assert (tmp_path / "out" / "figures" / "relations.svg").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(hc.InputError, match="cannot be a folder"):
        found.save(tmp_path / "file")


def test_one_layer_has_one_number_and_not_a_range(folder):
    found = hc.audit(folder, layers=[1], relations=[], **FAST)
    assert " to " not in removal_text(found).split("choices")[0]


def test_a_notebook_shows_layers_and_findings(found):
    html = found._repr_html_()
    assert html.count("<tr>") >= LAYERS + 2
    assert "random" in html


def test_the_same_seed_gives_the_same_audit(folder, found):
    again = hc.audit(folder, relations=[folder / "mine.csv"], **FAST)
    pd.testing.assert_frame_equal(again.scores, found.scores)
    timed = ["compiled_columns"]
    pd.testing.assert_frame_equal(again.heads.drop(columns=timed), found.heads.drop(columns=timed))


def test_the_command_prints_writes_and_gives_json(folder, command, tmp_path):
    times = ("--compile-seconds", 0, "--compress-seconds", 0)
    options = ("--permutations", 19, "--random-heads", 5, *times)
    code, out, _ = command("audit", folder, "--relations", folder / "mine.csv", *options)
    assert code == 0
    assert "entropy rank" in out
    assert "heads know it" in out
    words = ("--layers", "0,2", "--relations", "none", "--json", "--out", tmp_path / "o", *options)
    code, out, _ = command("audit", folder, *words)
    told = json.loads(out)
    assert code == 0
    assert told["layers"] == 2
    assert {row["layer"] for row in told["frames"]["heads"]} == {0, 2}
    assert told["frames"]["relations"] == []
    assert told["page"] == str(tmp_path / "o" / "audit.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "7"), "layer 7 is not in the model, which has 3; choose from 0…2"),
        (("--layers", "a-b"), "write numbers and ranges, such as 0-3,8"),
        (("--layers", "2-1"), "no layer is named"),
        (("--offsets", "x"), "write numbers, such as 0,1,16"),
        (("--relations", "rhymes"), "relation 'rhymes' is unknown"),
        (("--permutations", "5"), "5 permutations cannot give a p-value of 0.05"),
        (("--random-heads", "1"), "1 random heads have no spread"),
        (("--level", "2"), "level 2.0 is not between 0 and 1"),
        (("--compile-seconds", "-1"), "-1 s cannot be kept to; choose 0, for none, or more"),
        (("--compress-seconds", "inf"), "inf s cannot be kept to"),
        (("--out", "/dev/null/x"), "/dev/null/x: cannot be a folder"),
    ],
)
def test_options_that_cannot_be_used_are_refused(folder, command, words, message):
    code, _, errors = command("audit", folder, *words)
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_offsets_need_a_plain_rotary_embedding(folder, tmp_path):
    bert = write_model(tmp_path / "bert", "bert", drawn("bert"))
    with pytest.raises(
        hc.InputError, match="model bert has no rotary embedding; leave the offsets"
    ):
        hc.audit(bert, offsets=[0, 1])
    scaled = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}
    other = write_model(tmp_path / "other", "llama", drawn("llama"), **scaled)
    with pytest.raises(hc.InputError, match="llama changes the rotary embedding's frequencies"):
        hc.audit(other, offsets=[1])
    turned = hc.audit(folder, relations=[folder / "mine.csv"], offsets=[0, 4], layers=[0], **FAST)
    assert turned.scores["offset"].value_counts().to_dict() == {0.0: HEADS, 4.0: HEADS}
    assert turned.scores["auc"][:HEADS].tolist() != turned.scores["auc"][HEADS:].tolist()


def test_sampled_words_are_words(tmp_path):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    model = open_model(folder)
    assert len(sampled_ids(model, most=50)) == 50
    (folder / "vocab.txt").write_text("\n".join([*WORDS[:10], *["##x"] * 118]))
    assert sampled_ids(open_model(folder)).tolist() == list(range(10))
