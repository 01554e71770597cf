"""What files, names and other processes must not be able to do."""

from __future__ import annotations

import json
import os
import random
import stat
import threading
import unicodedata

import pandas as pd
import pytest
import torch
from safetensors import safe_open

from headcount import Graph, InputError, KeyQuery, RunSpec, files, load_weights
from headcount.block.spec import BlockSpec
from headcount.block.state import StackState
from headcount.files import load_frame, replacing, save_frame, save_tensors
from headcount.progress import printable
from headcount.reproduction.results_folder import ResultsFolder
from headcount.store.store import Store
from headcount.store.sweeps import _is_alive
from headcount.sweeps.block_states import StateFolder
from headcount.sweeps.manifest import Manifest, ManifestEntry
from headcount.training.result import RunResult

ENTRY = {"command": "a", "trained": 1, "seconds": {"runs": 1.0}}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_an_overwritten_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"old")
    path.chmod(mode)
    save_tensors(path, {"x": torch.ones(2)})
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "a.txt"
    path.touch(0o600)
    with replacing(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("secret")


def test_a_new_file_follows_the_umask_which_is_never_changed(tmp_path, monkeypatch):
    """It belongs to the whole process: another thread's files would be writable for all."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
            with replacing(tmp_path / "a.txt") as temporary:
                temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_outputs_that_cannot_be(tmp_path, command):
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    (tmp_path / "folder.csv").mkdir()
    for name in ("loop.csv", "folder.csv", "nowhere/a.csv", "x" * 250 + ".csv"):
        code, _, err = command(
            "make", "graph", "permutation", "--items", 4, "--out", tmp_path / name
        )
        assert code == 2, err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
    says = "a symbolic link in this path leads back to itself; choose another path"
    for words in (
        ("make", "graph", "permutation", "--items", 4, "--out", loop),
        ("make", "graph", "permutation", "--items", 4, "--out", loop / "a.csv"),
        ("train", "--items", 32, "--d-model", 8, "--heads", 1, "--key-dim", 1, "--out", loop),
        ("tour", "--out", loop),
        ("reproduce", "--only", "table2", "--out", loop),
    ):
        code, _, err = command(*words)
        assert (code, err.splitlines()[-1]) == (2, f"error: {words[-1]}: {says}")
    for path in (loop, loop / "a.sqlite"):
        with pytest.raises(InputError, match="leads back to itself"):
            Store(path)
    with pytest.raises(InputError, match="is not the name of a file"):
        Graph.from_edges(2, [(0, 1)]) and save_frame(pd.DataFrame(), f"{tmp_path}/a\0.parquet")


ESCAPE = "\x1b]0;owned\x07\x9b31m"


def test_no_commands_reach_the_terminal(tmp_path, command, capsys):
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.5, notes={f"a{ESCAPE}": ESCAPE})
    weights.save(tmp_path / "w.safetensors")
    with Store(tmp_path / "s.sqlite") as store:
        store.sweeps.end(store.sweeps.begin(f"name{ESCAPE}\nforged", 1, 1))
    (tmp_path / f"t{ESCAPE}.npy").write_bytes(b"")
    for words in (
        ("show", tmp_path / "w.safetensors"),
        ("show", tmp_path / "w.safetensors", "--json"),
        ("watch", tmp_path / "s.sqlite", "--once"),
        ("watch", tmp_path / "s.sqlite", "--json"),
        ("verify", tmp_path / "w.safetensors", tmp_path / "g.csv", tmp_path / f"t{ESCAPE}.npy"),
    ):
        _, out, err = command(*words)
        assert not set(out + err) & set("\x1b\x07\x9b"), words
    _, out, _ = command("show", tmp_path / "w.safetensors")
    assert r"\x1b]0;owned\x07\x9b31m" in out
    _, out, _ = command("watch", tmp_path / "s.sqlite", "--once")
    assert r"name\x1b]0;owned\x07\x9b31m\nforged" in out
    _, out, _ = command("show", tmp_path / "w.safetensors", "--json")
    assert json.loads(out)[f"a{ESCAPE}"] == ESCAPE


def test_no_character_that_is_not_seen_is_printed(tmp_path, command):
    """Among them U+202E, after which a terminal writes from right to left."""
    kinds = ("Cc", "Cf", "Zl", "Zp")
    unseen = "".join(
        letter for letter in map(chr, range(0x110000)) if unicodedata.category(letter) in kinds
    )
    assert set(printable(unseen)) - {"\t", "\n"} <= set(map(chr, range(32, 127)))
    seen = "naïve 東京 ½ → 🙂 مرحبا\n\t"
    assert printable(seen) == seen
    notes = {f"a{letter}": f"{letter} after" for letter in "\u202e\u2066\u200b\xad\x7f\U000e0041"}
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.5, notes=notes)
    weights.save(tmp_path / "w.safetensors")
    _, plainly, _ = command("show", tmp_path / "w.safetensors")
    _, as_json, _ = command("show", tmp_path / "w.safetensors", "--json")
    assert not set(plainly + as_json) & (set(unseen) - {"\n"})
    assert json.loads(as_json).items() >= notes.items()


def test_concurrent_commands_keep_each_others_entries(tmp_path):
    manifest = Manifest(tmp_path / "manifest.json")

    def work(name: str) -> None:
        place = None
        for trained in range(20):
            place = manifest.put(ENTRY | {"command": name, "trained": trained}, place)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = manifest.history()
    assert sorted(entry["command"] for entry in made) == list("abcd")
    assert {entry["trained"] for entry in made} == {19}


def test_two_reproductions_in_one_folder_are_both_recorded(tmp_path):
    folder = ResultsFolder(tmp_path)
    first, second = (ManifestEntry(name, "cpu") for name in ("first", "second"))
    with folder.recorded("quick", first) as write_first:
        with folder.recorded("quick", second):
            first.trained = 3
            write_first()
        assert [entry["trained"] for entry in folder.history()] == [3, 0]
    assert [entry["command"] for entry in folder.history()] == ["first", "second"]
    assert all(entry["complete"] for entry in folder.history())


@pytest.mark.parametrize(
    "made",
    [
        [3],
        [{}],
        [ENTRY | {"trained": "many"}],
        [ENTRY | {"seconds": None}],
        [ENTRY | {"seconds": {"runs": "long"}}],
        [ENTRY | {"versions": 3}],
        [ENTRY | {"machine": ["a"]}],
        [ENTRY | {"seconds": 1e999}],
    ],
)
def test_malformed_manifests_get_one_sentence(tmp_path, made, command):
    counts = {"preset": "quick", "runs": 0, "run_steps": 0}
    (tmp_path / "manifest.json").write_text(json.dumps(counts | {"made": made}))
    (tmp_path / "runs.parquet").touch()
    code, _, err = command("report", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "manifest.json: cannot be read (entry 1 is not one that headcount writes)" in err


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({"preset": 3, "runs": 0, "run_steps": 0, "made": [ENTRY]}),
        json.dumps({"preset": "quick", "runs": "x", "run_steps": 0, "made": [ENTRY]}),
        f'{{"made": [], "runs": {"9" * 5000}}}',
        b"\xff\xfe".decode("latin-1"),
    ],
)
def test_other_manifests_that_are_none(tmp_path, text, command):
    (tmp_path / "manifest.json").write_text(text)
    (tmp_path / "runs.parquet").touch()
    code, _, err = command("report", tmp_path, "--out", tmp_path / "out")
    assert code == 2
    assert "manifest.json: cannot be read (" in err


def test_the_log_of_a_linked_store_is_looked_for_beside_the_file(tmp_path, monkeypatch):
    """On read-only media the log that a killed sweep left holds its newest runs."""
    import sqlite3

    from headcount.store import database

    folder = tmp_path / "there"
    folder.mkdir()
    Store(folder / "s.sqlite").close()
    (folder / "s.sqlite-wal").write_bytes(b"newer rows")
    link = tmp_path / "link.sqlite"
    link.symlink_to(folder / "s.sqlite")
    refused = sqlite3.OperationalError("unable to open database file")
    refused.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    def version_of(connection):
        raise refused

    monkeypatch.setattr(database.schema, "version_of", version_of)
    with pytest.raises(InputError, match=r"there/s\.sqlite-wal holds newer runs; copy s\.sqlite"):
        database._open_to_read(link)


def test_flipped_bits_in_a_table_of_runs_are_noticed(tmp_path):
    frame = pd.DataFrame({"seed": range(300), "value": [seed / 7 for seed in range(300)]})
    save_frame(frame, tmp_path / "whole.parquet")
    data, draw = (tmp_path / "whole.parquet").read_bytes(), random.Random(0)
    changed = tmp_path / "changed.parquet"
    for _ in range(200):
        place, flipped = draw.randrange(len(data)), bytearray(data)
        flipped[place] ^= 1 << draw.randrange(8)
        changed.write_bytes(flipped)
        try:
            found = load_frame(changed)
        except ValueError:
            continue
        if set(found.columns) == set(frame.columns):  # else it is refused for its columns
            assert found.equals(frame)


def test_flipped_bits_in_a_state_are_noticed(tmp_path, capsys):
    spec = BlockSpec(
        items=16, d_model=4, heads=1, key_dim=2, length=2, table="t", table_hash="0" * 32
    )
    states = StateFolder(tmp_path / "states")
    states.save(StackState.initial([spec]))
    (path,) = states.path.glob("*.safetensors")
    data, draw = path.read_bytes(), random.Random(0)
    assert len(states.load([spec])) == 1
    for _ in range(200):
        flipped = bytearray(data)
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        assert states.load([spec]) == []
    path.write_bytes(data)
    assert len(states.load([spec])) == 1


def test_flipped_bits_in_a_store_are_noticed(tmp_path):
    """The rest is in the fuzzers; this is what `runs.jsonl` of release 0.1.0 let pass."""
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5)
        store.add([RunResult(spec, 0.75, 20_000, 0.5, (), None, "torch", "cpu", 1.0)])
    data = path.read_bytes()
    place = data.index(b'"d_model":16')
    path.write_bytes(data[:place] + b'"d_model":17' + data[place + 12 :])
    with pytest.raises(InputError, match="has changed since it was stored"):
        Store(path)


@pytest.mark.parametrize("text", ["10.99999999999999999999", "9007199254740993.0", str(2**53 + 1)])
def test_a_threshold_that_float64_rounds_is_refused(tmp_path, text):
    path = tmp_path / "w.safetensors"
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.1)
    weights.save(path)
    assert load_weights(path).threshold == 0.1
    with safe_open(path, "pt") as file:
        metadata = {**file.metadata(), "threshold": text}
    save_tensors(path, {"queries": weights.queries, "keys": weights.keys}, metadata)
    with pytest.raises(InputError, match="which float64 rounds"):
        load_weights(path)


def test_columns_are_counted_across_line_breaks_in_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_COLUMNS", 100)
    (tmp_path / "t.csv").write_text(("1," * 60 + '"\n",') * 3)
    with pytest.raises(InputError, match=r"t\.csv, line 2: has more than 100 columns"):
        list(files.read_records(tmp_path / "t.csv", ","))


def test_no_process_has_the_number_0_or_a_negative_one():
    assert _is_alive(os.getpid())
    assert not any(map(_is_alive, (0, -1, 2**40)))
