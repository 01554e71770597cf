"""Two workers of a local cluster train what this process trains: own files, and blocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headcount import Store
from headcount.problem import contents
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.block_runs import run_blocks
from headcount.sweeps.file import read_sweep
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.training.engines.selection import choose_engine
from tests.sweep_runs import table, write_own_sweep
from tests.tiny_blocks import same

pytest.importorskip("cryptography")
pytest.importorskip("distributed", reason="needs the package distributed")
from headcount.sweeps import block_cluster, cluster_queue
from headcount.sweeps.cluster import ClusterExecutor
from headcount.sweeps.cluster_connection import Cluster, connected_cluster

pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)  # dask leaves the sockets of workers that died to the garbage collector


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """For all tests here. Its workers are new interpreters, as users' are, and take seconds."""
    with connected_cluster("local:2", lambda text: None) as connected:
        yield connected


def test_two_workers_get_each_file_once(cluster, tmp_path, monkeypatch):
    sweep = read_sweep(write_own_sweep(tmp_path))
    with Store(tmp_path / "here.sqlite") as store:
        run_sweep(sweep, store, LocalExecutor(choose_engine("native")))
    sent = list[str]()
    monkeypatch.setattr(
        cluster_queue, "to_bytes", lambda key: sent.append(key) or contents.to_bytes(key)
    )
    monkeypatch.setattr(cluster_queue, "_SHARD", 0.05)  # so that both get several shards
    monkeypatch.setattr(cluster_queue, "_LEAST_SHARD", 0.05)
    with Store(tmp_path / "there.sqlite") as store:
        run_sweep(sweep, store, ClusterExecutor(cluster, "native"))
        assert len(store) == 16
    spec = sweep.runs[0]
    assert set(sent) == {spec.graph, spec.table}
    assert max(sent.count(key) for key in set(sent)) <= 2
    here, there = (table(tmp_path / name) for name in ("here.sqlite", "there.sqlite"))
    assert here == there


def test_blocks_are_the_same_runs(cluster, tiny, tmp_path, monkeypatch, trained):
    """Also where shards end early, so that states travel."""
    plan = read_block_plan(tiny)
    executor = block_cluster.ClusterBlockExecutor(cluster, "local:2", "cpu")
    for limit in (120.0, 0.02):
        monkeypatch.setattr(block_cluster, "SHARD_LIMIT", limit)
        there = BlockFolder(tmp_path / f"there-{limit}")
        run_blocks(plan, there, "some", executor, time_limit=0.01)
        assert run_blocks(plan, there, "there", executor).missing == 0
        assert same(there.results()) == same(trained.results())
        assert not list(there.states.path.glob("*"))
        with Store(there.store, read_only=True) as store:
            last = list(store.sweeps)[-1]
        assert (last.state, last.settled_steps) == ("finished", last.total_steps)
        assert there.manifest.history()[-1]["device"] == "cluster local:2"
