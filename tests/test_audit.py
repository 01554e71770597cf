"""The audit of a model: its tables and page, its command, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import headcount as hc
from headcount.auditing.opening import open_model
from headcount.auditing.result import FRAMES
from headcount.auditing.token_rows import sampled_ids
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


def test_compiled_columns_stand_beside_those_of_random_heads(found):
    columns, width = found.heads["compiled_columns"].dropna(), found.sizes.key_dim
    assert len(columns) == 1  # a second is too short for more
    assert columns.between(1, width).all()
    assert 1 <= found.random["compiled_columns"] <= width
    assert 1 <= found.random["kept_rank_90"] <= found.random["kept_rank"] <= width
    assert 1 <= found.random["chosen_words"] <= len(WORDS)


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
