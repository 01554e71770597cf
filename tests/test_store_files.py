"""Files that are damaged, strange, older, newer or unwritable: one sentence, and left alone."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import InputError
from headcount.store import database as database_module
from headcount.store import schema
from headcount.store.runs import row_of
from headcount.store.store import Store
from tests.store_writers import result_of, same, spec_of


def _refused(path: Path, *words: str) -> None:
    """Opening fails in both ways with one sentence that names the file, and changes no byte."""
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(InputError) as caught:
            Store(path, read_only)
        text = str(caught.value)
        assert text.startswith(f"{path}: ")
        assert "\n" not in text
        assert all(word in text for word in words), text
    assert path.read_bytes() == before


def test_files_that_are_no_store(path):
    path.write_text("items,d_model\n64,16\n")
    _refused(path, "not a results store")
    path.write_bytes(b"")
    _refused(path, "is empty")
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (a)")
    connection.close()
    _refused(path, "another program's")


def test_a_newer_store_is_refused(filled):
    with sqlite3.connect(filled) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    _refused(filled, "newer headcount", "upgrade")


def test_a_store_without_one_of_its_tables_is_damaged(filled):
    with sqlite3.connect(filled) as connection:
        connection.execute("DROP TABLE sweeps")
    connection.close()
    _refused(filled, "damaged", "restore a copy")


@settings(deadline=None, max_examples=12)
@given(st.floats(0.001, 0.999))
def test_truncated_stores_are_refused(share):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.sqlite")
        with Store(path) as store:
            store.add(map(result_of, range(40)))
        whole = path.read_bytes()
        path.write_bytes(whole[: max(int(len(whole) * share), 1)])
        _refused(path)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_flipped_byte_is_noticed_or_changes_nothing(data):
    """Either the file is refused, or the byte meant nothing and every run is as it was."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.sqlite")
        with Store(path) as store:
            store.add(map(result_of, range(12)))
        whole = bytearray(path.read_bytes())
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole)
        try:
            with Store(path, read_only=True) as store:
                assert all(
                    same(store.get(spec_of(number)), result_of(number)) for number in range(12)
                )
        except InputError:
            _refused(path)


@pytest.mark.parametrize("change", ["value = 0.75", "engine = CAST(engine AS BLOB)"])
def test_a_changed_value_is_noticed(filled, change):
    with sqlite3.connect(filled) as connection:
        connection.execute(f"UPDATE runs SET {change} WHERE seed = 7")
    connection.close()
    _refused(filled, f"run {spec_of(7).hash} has changed", "name a new store")


def test_large_files_are_checked_as_they_are_read(filled, monkeypatch):
    with sqlite3.connect(filled) as connection:
        connection.execute("UPDATE runs SET value = 0.75 WHERE seed = 7")
    connection.close()
    monkeypatch.setattr(database_module, "_WHOLE_CHECK", 0)
    with Store(filled) as store:
        assert same(store.get(spec_of(6)), result_of(6))
        with pytest.raises(InputError, match="has changed"):
            store.get(spec_of(7))
    whole = filled.read_bytes()
    filled.write_bytes(whole[:-5000])
    _refused(filled, "damaged")


def test_a_full_disk_loses_nothing(filled):
    with Store(filled) as store:
        connection = store._database._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(InputError, match="the disk is full; free some space"):
            store.add(map(result_of, range(40, 400)))
        assert set(store.frame()["seed"]) == set(range(40))  # all or nothing
        connection.execute("PRAGMA max_page_count = 100000")
        assert store.add(map(result_of, range(30, 60))) == 20
    with Store(filled) as store:
        assert all(same(store.get(spec_of(number)), result_of(number)) for number in range(60))


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """A folder of a user without special rights, which the test becomes."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        folder.chmod(0o777)
        shutil.rmtree(folder)
        if root:
            os.seteuid(0)


def test_read_only_files_and_folders(own_folder):
    path = own_folder / "s.sqlite"
    with Store(path) as store:
        store.add(map(result_of, range(3)))
    path.chmod(0o444)
    with pytest.raises(InputError, match="cannot be written; check the permissions"):
        Store(path)
    own_folder.chmod(0o555)
    with pytest.raises(InputError, match=r"new\.sqlite: cannot be (opened|written)"):
        Store(own_folder / "new.sqlite")
    with pytest.raises(InputError, match=r"cannot be (opened|written)"):
        Store(path)
    with Store(path, read_only=True) as store:  # no helper files can be made here
        assert len(store) == 3
        with pytest.raises(InputError, match="cannot be written"):
            store.add([result_of(9)])
    assert [file.name for file in own_folder.iterdir()] == ["s.sqlite"]
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        Store(path, read_only=True)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Store(tmp_path / "none.sqlite", read_only=True)
    with pytest.raises(InputError, match="does not exist; make it first"):
        Store(tmp_path / "none" / "s.sqlite")
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_may_have_any_name(tmp_path):
    for name in ("a b?mode=memory#1.sqlite", "100%25", "ℓ.db"):
        with Store(tmp_path / name) as store:
            store.add([result_of(1)])
        assert (tmp_path / name).stat().st_size > 1000
    assert len(list(tmp_path.iterdir())) == 3


def _version_1(path: Path) -> None:
    """A store as version 1 made it."""
    old = [name for name in schema.COLUMNS if name not in ("degree", "versions")]
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute(
            """CREATE TABLE runs (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE,
            variant TEXT NOT NULL, items INTEGER NOT NULL, d_model INTEGER NOT NULL,
            heads INTEGER NOT NULL, key_dim INTEGER NOT NULL, budget INTEGER NOT NULL,
            seed INTEGER NOT NULL, steps INTEGER NOT NULL, value, diverged INTEGER, threshold,
            engine TEXT NOT NULL, device TEXT NOT NULL, seconds, finished_at TEXT NOT NULL,
            spec TEXT NOT NULL, history TEXT NOT NULL)"""
        )
        connection.execute(
            "CREATE TABLE checkpoints (hash TEXT PRIMARY KEY, taken INTEGER, state BLOB)"
        )
        for number in range(5):
            result = replace(result_of(number), spec=replace(spec_of(number), degree=1 + number))
            row = dict(zip(schema.STORED, row_of(result), strict=True))
            values = [row[name] for name in old]
            connection.execute(
                f"INSERT INTO runs ({', '.join(old)}) VALUES ({', '.join('?' * len(old))})", values
            )
        connection.execute("PRAGMA user_version = 1")
    connection.close()


def test_version_1_is_migrated(path):
    _version_1(path)
    before = path.read_bytes()
    with Store(path, read_only=True) as store:
        copied = store.frame()
    assert path.read_bytes() == before
    with Store(path) as store:
        assert sorted(store.frame()["degree"]) == [1, 2, 3, 4, 5]
        pd.testing.assert_frame_equal(store.frame(), copied)
        for result in store.results():
            assert result.versions == {}
            assert result.history == result_of(result.spec.seed).history
        assert store.add([result_of(7)]) == 1
        assert store.sweeps.begin("a", 1, 1) == 1
    with Store(path) as store:
        assert len(store) == 6
        assert store._database.read("PRAGMA user_version") == [(schema.VERSION,)]
    tables = []
    for file in (path, path.with_name("new.sqlite")):
        with Store(file) as store:
            tables.append(schema.shape(store._database._connection))
    assert tables[0] == tables[1] == schema.wanted_shape()


def _version_2(path: Path) -> None:
    """A store as version 2 made it: no details."""
    with Store(path) as store:
        store.add(map(result_of, range(5)))
    with sqlite3.connect(path) as connection:
        for name in ("details", *schema.FROM_SPEC):
            connection.execute(f'ALTER TABLE runs DROP COLUMN "{name}"')
        for name in ("contents", "files"):
            connection.execute(f"DROP TABLE {name}")
        connection.execute("PRAGMA user_version = 2")
    connection.close()


def test_version_2_is_migrated_and_keeps_its_digests(path):
    _version_2(path)
    before = path.read_bytes()
    with Store(path, read_only=True) as store:
        copied = store.frame()
    assert path.read_bytes() == before
    with Store(path) as store:
        pd.testing.assert_frame_equal(store.frame(), copied)
        assert all(same(store.get(spec_of(number)), result_of(number)) for number in range(5))
        assert schema.shape(store._database._connection) == schema.wanted_shape()


def test_a_changed_run_of_version_2_is_refused(path):
    _version_2(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET value = 0.75 WHERE seed = 3")
    connection.close()
    _refused(path, f"run {spec_of(3).hash} has changed", "name a new store")


def test_a_failed_migration_changes_nothing(path, monkeypatch):
    _version_1(path)

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE checkpoints")
        raise sqlite3.OperationalError("no such luck")

    with Store(path, read_only=True) as store:
        before = store.frame()
    monkeypatch.setitem(schema._STEPS, 1, fails)
    with pytest.raises(InputError, match="no such luck"):
        Store(path)
    monkeypatch.undo()
    with Store(path) as store:
        pd.testing.assert_frame_equal(store.frame(), before)


def test_a_store_of_10000_rows_opens_at_once(path):
    row = row_of(result_of(0))
    with Store(path) as store, store._database.transaction() as connection:
        for number in range(10_000):
            copy = (f"{number:032x}", *row[1:])
            places = ", ".join("?" * (len(row) + 1))
            query = f"INSERT INTO runs ({', '.join(schema.STORED)}, digest) VALUES ({places})"
            connection.execute(query, (*copy, schema.row_digest(copy)))
    began = time.process_time()
    with Store(path) as store:
        opened = time.process_time() - began
        assert len(store) == 10_000
    assert opened < 3
