"""One worker per GPU: pinned, warmed once, with shards that fill it; and the example configs."""

from __future__ import annotations

import ast
import multiprocessing
import os
from collections import deque
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headcount import RunSpec
from headcount.errors import InputError
from headcount.store.store import Store
from headcount.sweeps import cluster_queue, worker
from headcount.sweeps.cluster import Cluster, ClusterExecutor
from headcount.sweeps.cluster_connection import _devices, connected_cluster
from headcount.sweeps.cluster_queue import RunQueue, Worker
from headcount.sweeps.cost import Throughput
from headcount.sweeps.plans import GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.selection import choose_engine
from headcount.training.engines.torch import TorchEngine
from headcount.training.train import UnderWay
from tests.sweep_runs import table

for package in ("distributed", "cryptography", "triton"):
    pytest.importorskip(package, reason=f"needs the package {package} (pip install {package})")

EXAMPLES = Path(__file__).parents[1] / "examples" / "clusters"
TINY = {"steps": 4, "check_every": 2, "length": 4, "validation": 4, "test": 4}
SPECS = [RunSpec(8, 4, heads, 2, seed, **TINY) for heads in (1, 2) for seed in range(2)]


@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
def test_two_pinned_workers_write_the_table_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    trained = _spread(monkeypatch)
    said = list[str]()
    with Store(tmp_path / "one.sqlite") as store:
        run_sweep(GridPlan(SPECS), store, LocalExecutor(choose_engine("triton")), "one")
    with (
        Store(tmp_path / "two.sqlite") as store,
        connected_cluster("gpus", said.append) as connected,
    ):
        seen = connected._client.run(_own_process)
        run_sweep(GridPlan(SPECS), store, ClusterExecutor(connected, "triton"), "two")
    assert sorted(seen.values()) == [("3", False), ("GPU-5", False)]
    assert said == []
    assert set(trained) == set(seen)  # both took part
    # On a slow machine a shard ends early, and the rest of its runs is sent again.
    assert set(chain(*trained.values())) == set(range(len(SPECS)))
    assert table(tmp_path / "two.sqlite") == table(tmp_path / "one.sqlite")


def _own_process() -> tuple[str | None, bool]:
    """The devices of a worker, and whether it is barred from starting processes."""
    return os.getenv("CUDA_VISIBLE_DEVICES"), multiprocessing.current_process().daemon


def _spread(monkeypatch) -> dict[str, list[int]]:
    """Wait for all workers and cut small shards; the specs that each worker trains, by number."""
    trained, assign, submit = dict[str, list[int]](), Cluster._assign, Cluster._submit

    def when_all_are_known(self, queue):
        if all(one.kind for one in self._workers.values()):
            assign(self, queue)

    def recorded(self, name, function, *arguments):
        if function is worker.run_shard:
            trained.setdefault(name, []).extend(SPECS.index(run.spec) for run in arguments[0])
        return submit(self, name, function, *arguments)

    monkeypatch.setattr(Cluster, "_assign", when_all_are_known)
    monkeypatch.setattr(Cluster, "_submit", recorded)
    monkeypatch.setattr(cluster_queue, "_LEAST_SHARD", 0.0)
    return trained


def test_devices_are_those_that_cuda_counts(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _devices() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 1,-1,2")
    assert _devices() == ["4", "1"]


def test_without_a_gpu_there_is_a_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with (
        pytest.raises(InputError, match="sees no CUDA device; use local:4"),
        connected_cluster("gpus", print),
    ):
        pass


def gpu(workers: int, waiting: int) -> int:
    """How many of the waiting runs the first of these GPU workers gets."""
    queue = RunQueue([], "triton", SweepWriter.__new__(SweepWriter))
    one = Worker(kind=("triton", "cuda/H200/1"), throughput=Throughput(1.0))  # seems slow
    runs = deque(RunSpec(8, 4, 1, 2, seed, **TINY) for seed in range(waiting))
    return len(queue._cut(runs, one, workers))


def test_a_shard_fills_a_gpu_and_leaves_none_idle():
    full = cluster_queue._FULL
    assert gpu(workers=1, waiting=3 * full) == full
    assert gpu(workers=2, waiting=3 * full) == full
    assert gpu(workers=4, waiting=full) == full // 4
    assert gpu(workers=4, waiting=3) == 1
    queue = RunQueue([], "native", SweepWriter.__new__(SweepWriter))
    cpu = Worker(kind=("native", "cpu/avx2/1"), throughput=Throughput(1.0))
    assert len(queue._cut(deque(SPECS), cpu, 2)) == 1


def test_only_first_shards_of_the_cpu_end_soon(tmp_path):
    """A GPU's would end before its runs are drawn, and come back with all their states."""
    with Store(tmp_path / "some.sqlite") as store, SweepWriter(store, "some") as writer:
        for kind, seconds in (
            (("triton", "cuda/H200/1"), cluster_queue.SHARD_LIMIT),
            (("native", "cpu/avx2/1"), cluster_queue._FIRST_LIMIT),
        ):
            writer.begin_batch(SPECS)
            shard = RunQueue(SPECS, "auto", writer).next_shard(Worker(kind=kind), [kind])
            assert shard is not None
            assert shard.arguments[2] == seconds


def test_a_worker_warms_every_shape_once(monkeypatch):
    prepared = list[list[RunSpec]]()

    class Engine(TorchEngine):
        def prepare(self, specs):
            prepared.append(list(specs))

    engine = Engine("cpu")
    monkeypatch.setattr(worker, "_engine", lambda name: engine)
    monkeypatch.setattr(worker, "_warm", set())
    first, second = SPECS[:2], SPECS[2:]
    for shard in (first, first, SPECS):
        report = worker.run_shard([UnderWay(spec) for spec in shard], "torch", 60.0)
        assert {result.spec for result in report.results} == set(shard)
    assert prepared == [first, second]


def test_a_daemonic_worker_compiles_its_kernels_itself(monkeypatch):
    """dask's workers may not start processes."""
    from headcount.training.engines.triton import compilation

    compiled = list[RunSpec]()
    of = staticmethod(lambda spec, slots: compiled.append(spec))
    monkeypatch.setattr(compilation.Compilation, "of", of)
    monkeypatch.setattr(compilation, "_CACHED", -9.0)  # every shape counts as compiled anew
    monkeypatch.setattr(compilation, "current_process", lambda: SimpleNamespace(daemon=True))
    assert compilation.compile_ahead(SPECS, slots=264) == 2
    assert len(compiled) == 2


def test_the_slurm_example_gives_every_worker_one_gpu():
    yaml = pytest.importorskip("yaml", reason="needs the package pyyaml")
    found = yaml.safe_load((EXAMPLES / "slurm.yaml").read_text(encoding="utf-8"))
    job = found["jobqueue"]["slurm"]
    assert (job["cores"], job["processes"]) == (1, 1)
    assert job["job-extra-directives"] == ["--gres=gpu:1"]
    _parse_worker(["tls://scheduler:8786", *job["worker-extra-args"]])
    script = ast.parse((EXAMPLES / "slurm.py").read_text(encoding="utf-8"))
    names = {node.attr for node in ast.walk(script) if isinstance(node, ast.Attribute)}
    assert {"scale", "scheduler_address"} <= names


def test_the_kubernetes_example_gives_every_worker_one_gpu():
    yaml = pytest.importorskip("yaml", reason="needs the package pyyaml")
    import dask.config
    from distributed.cli.dask_scheduler import main as scheduler

    found = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8"))
    parts = {side: found["spec"][side]["spec"] for side in ("scheduler", "worker")}
    (master,), (own,) = (part["containers"] for part in parts.values())
    assert own["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert own["args"][:2] == ["dask", "worker"]
    assert own["args"][2] == f"tls://{found['metadata']['name']}-scheduler:8786"
    options = _parse_worker([word.replace("$(DASK_WORKER_NAME)", "w") for word in own["args"][2:]])
    assert (options["nthreads"], options["preload"]) == (1, ("headcount.sweeps.worker",))
    scheduler.make_context("dask scheduler", master["args"][2:], resilient_parsing=True)
    # The variables are those that dask reads, and the volume that they point into is mounted.
    for entry in own["env"]:
        setting = entry["name"].removeprefix("DASK_").lower().replace("__", ".")
        dask.config.get(setting)  # a KeyError, if there is none of this name
    assert {entry["value"].rpartition("/")[0] for entry in own["env"]} == {"", "/tls"}
    for part, container in ((parts["scheduler"], master), (parts["worker"], own)):
        assert [volume["name"] for volume in part["volumes"]] == ["tls"]
        assert container["volumeMounts"][0]["mountPath"] == "/tls"


def _parse_worker(words: list[str]) -> dict[str, object]:
    """The options of `dask worker`, parsed by dask itself."""
    from distributed.cli.dask_worker import main

    return main.make_context("dask worker", [*words], resilient_parsing=True).params
