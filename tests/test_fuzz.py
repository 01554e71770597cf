"""A moment of every fuzzer, and the corpus; `make fuzz` runs them longer."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from headcount import InputError
from tests.fuzz.__main__ import FUZZERS, run
from tests.fuzz.corpus import FOLDER
from tests.fuzz.readers import readers_of

CASES = {"verify": 60, "certificates": 10, "stores": 20, "readers": 60}


@pytest.mark.parametrize("name", FUZZERS)
def test_a_moment_of_each_fuzzer(name):
    assert run([name], 0.0, first_seed=0, cases=CASES[name]) == {name: CASES[name]}


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_every_bad_file_is_refused_in_a_sentence_that_names_it(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for read in readers_of(path):
            with pytest.raises(InputError, match=path.name) as found:
                read(path)
            assert "; " in str(found.value)  # a remedy
            assert len(str(found.value)) < 1000 + len(str(path))


def test_a_failure_prints_the_seed_that_repeats_it(monkeypatch, capsys):
    drawn = list[float]()

    def fails_at_times(rng: np.random.Generator) -> None:
        drawn.append(rng.random())
        assert drawn[-1] < 0.9

    monkeypatch.setitem(FUZZERS, "verify", fails_at_times)
    with pytest.raises(SystemExit):
        run(["verify"], 60.0, first_seed=5)
    said = capsys.readouterr().out
    seed = int(said.rpartition("--seed ")[2].split()[0])
    assert f"verify failed with seed {seed}; repeat it with: python -m tests.fuzz verify" in said
    assert np.random.default_rng(seed).random() == drawn[-1] >= 0.9
