"""Sweeps on dask workers: the same table as here, whatever happens to them."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from types import SimpleNamespace
from typing import ClassVar

import pytest

from headcount import RunResult, RunSpec, train
from headcount.errors import InputError
from headcount.store.store import Store
from headcount.sweeps import cluster, cluster_address, cluster_queue, writer
from headcount.sweeps.cluster import Cluster, ClusterExecutor
from headcount.sweeps.cluster_connection import connected_cluster
from headcount.sweeps.file import read_sweep
from headcount.sweeps.plans import GridPlan
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.worker import run_shard
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.selection import choose_engine
from headcount.training.train import UnderWay
from tests.sweep_runs import GRID, plain, table

for package in ("distributed", "cryptography"):
    pytest.importorskip(package, reason=f"needs the package {package} (pip install {package})")

# dask leaves the sockets of workers that died to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)

SPECS = [
    RunSpec(32, 8, heads, key_dim, seed, steps=40_000)
    for heads, key_dim, seed in product((1, 2), (4, 8), range(12))
]


@pytest.fixture
def expected(tmp_path) -> list[object]:
    """The table of an undisturbed sweep in this process."""
    with Store(tmp_path / "expected.sqlite") as store:
        run_sweep(GridPlan(SPECS), store, LocalExecutor(choose_engine("native")), "expected")
    return table(tmp_path / "expected.sqlite")


def workers_of(process: int) -> list[int]:
    """Process numbers of the dask workers below a process."""
    import psutil

    children = psutil.Process(process).children(recursive=True)
    return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]


def test_a_worker_killed_in_mid_sweep_changes_nothing(tmp_path, monkeypatch, expected):
    """Shards are cut short as well, so that states travel."""
    monkeypatch.setattr(writer, "BEAT", 0.1)
    monkeypatch.setattr(cluster_queue, "SHARD_LIMIT", 0.2)
    said, killed = list[str](), list[int]()

    def kill_one(progress):
        if progress.trained and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGSTOP)
            time.sleep(0.3)  # now it has a shard, which it had begun or was sent in the meantime
            os.kill(killed[0], signal.SIGKILL)

    with Store(tmp_path / "some.sqlite") as store:
        with connected_cluster("local:2", said.append) as connected:
            executor = ClusterExecutor(connected, "native")
            progress = run_sweep(GridPlan(SPECS), store, executor, "some", kill_one)
        assert len(killed) == 1
        assert progress.done == progress.trained == len(SPECS)
        assert [sweep.state for sweep in store.sweeps] == ["finished"]
        assert len(store.checkpoints) == 0
    assert len(said) == 1
    assert "has gone; its" in said[0]
    assert table(tmp_path / "some.sqlite") == expected
    assert workers_of(os.getpid()) == []


@pytest.mark.slow
def test_a_scheduler_that_comes_back_costs_nothing_finished(tmp_path, monkeypatch, expected):
    monkeypatch.setattr(writer, "BEAT", 0.1)
    address = f"tcp://127.0.0.1:{(port := free_port())}"
    said, lives = list[str](), ExitStack()

    def begin() -> list[subprocess.Popen[bytes]]:
        scheduler = lives.enter_context(dask("scheduler", "--host", "127.0.0.1", "--port", port))
        return [
            scheduler,
            lives.enter_context(dask("worker", address, "--nthreads", 1, "--no-nanny")),
        ]

    with lives, Store(tmp_path / "some.sqlite") as store:
        first = begin()
        wait_for(port)

        def restart(progress):
            if progress.trained and first:
                for process in first:
                    process.kill()
                    process.wait()
                first.clear()
                begin()

        with connected_cluster(address, said.append) as connected:
            executor = ClusterExecutor(connected, "native")
            progress = run_sweep(GridPlan(SPECS), store, executor, "some", restart)
    assert first == []
    assert progress.done == progress.trained == len(SPECS)
    assert any(line.startswith("the scheduler is gone; waiting") for line in said)
    assert table(tmp_path / "some.sqlite") == expected


@contextmanager
def dask(kind: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler or a worker as a process of its own, ended with -9."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, words), "--no-dashboard"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Until something listens there; a scheduler takes seconds to start."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def test_a_shard_gives_back_what_it_has_no_time_for():
    specs = [
        RunSpec(16, 8, 2, key_dim, seed, steps=60, check_every=20)
        for key_dim in (1, 2)
        for seed in range(2)
    ]
    expected = {result.spec: result for result in train(specs, "torch", progress=False)}
    runs, found, shards = [UnderWay(spec) for spec in specs], dict[RunSpec, RunResult](), 0
    while runs:
        report = run_shard(runs, "torch", 0.0)
        found |= {result.spec: result for result in report.results}
        assert {run.spec for run in report.left} | set(found) == set(specs)
        assert report.steps == 2 * 20
        runs, shards = report.left, shards + 1
    assert shards == 6  # two configurations, three blocks each
    assert all(plain(found[spec]) == plain(expected[spec]) for spec in specs)


class Silent:
    """A client whose workers never do anything."""

    def __init__(self, *workers: str) -> None:
        self.workers = workers

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 1)

    def submit(self, *anything, **more):
        return SimpleNamespace(done=lambda: False, status="pending")

    def cancel(self, *anything, **more) -> None:
        pass


def test_runs_that_workers_die_of_end_the_sweep(tmp_path):
    made = Cluster(Silent("one"), None, lambda text: None)
    with Store(tmp_path / "some.sqlite") as store:
        queue = cluster_queue.RunQueue([], "torch", SweepWriter(store, "some"))
        shard = cluster_queue.Shard(SPECS[:2], print, ())
        for _ in range(3):
            made._lose(queue, cluster_queue.Worker(shard=shard), "gone")
            assert list(queue._fresh)[:2] == SPECS[:2]
        with pytest.raises(InputError, match="4 workers were lost while they trained RunSpec"):
            made._lose(queue, cluster_queue.Worker(shard=shard), "gone")


def test_a_worker_that_cannot_be_used_is_refused(tmp_path):
    said = list[str]()
    made = Cluster(Silent("one"), None, said.append)
    with Store(tmp_path / "some.sqlite") as store:
        queue = cluster_queue.RunQueue(SPECS, "torch", SweepWriter(store, "some"))
        made._update_workers(queue)
        made._register("one", made._workers["one"], ("torch", "cpu"), "0.0")
        sentence = "no worker of the cluster can be used: worker one has headcount 0"
        with pytest.raises(InputError, match=sentence):
            made._update_workers(queue)


def test_a_cluster_without_workers_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_ALONE", 0.2)
    monkeypatch.setattr(cluster, "_POLL", 0.05)
    said = list[str]()
    with Store(tmp_path / "some.sqlite") as store, SweepWriter(store, "some") as writer:
        queue = cluster_queue.RunQueue(SPECS, "torch", writer)
        with pytest.raises(InputError, match="no worker has come in 0 s; start some with"):
            Cluster(Silent(), None, said.append).run(queue, writer)
    assert said == ["the cluster has no workers; waiting 0 s for one"]


def test_strangers_cannot_use_a_local_cluster():
    """Other users of the machine reach its ports, and must not reach more."""
    from distributed import Client

    with connected_cluster("local:1", print) as connected:
        address = connected._client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        for guess in (address, address.replace("tls", "tcp")):
            gc.collect()  # the failed client: it would lock, if collected while the next one starts
            with pytest.raises((OSError, TypeError, RuntimeError)):
                Client(guess, timeout=1, set_as_default=False)
        assert connected._client.submit(os.getpid).result() != os.getpid()


class FailingClient:
    """A client that finds no scheduler, unless told to, and that only the collector finds."""

    fails: ClassVar[bool] = True
    left: ClassVar[int] = 0  # failed and not collected
    before: ClassVar[list[int]] = []  # such clients, whenever one was made

    def __init__(self, *_args, **_options):
        FailingClient.before.append(FailingClient.left)
        if self.fails:
            FailingClient.left += 1
            self.itself = self
            raise OSError("no scheduler")

    def __del__(self):
        FailingClient.left = 0


@pytest.fixture
def failing(monkeypatch):
    """dask would close a failed client in the middle of the next one's start, and deadlock."""
    monkeypatch.setattr(FailingClient, "before", [])
    monkeypatch.setattr(FailingClient, "fails", True)
    monkeypatch.setattr("distributed.Client", FailingClient)
    monkeypatch.setattr(cluster_address.SchedulerAddress, "require_answer", lambda *_args: None)
    return FailingClient


def test_a_failed_client_is_gone_before_workers_start_here(failing):
    with pytest.raises(InputError, match="no scheduler answers"):
        connected_cluster("tcp://127.0.0.1:1", print).__enter__()
    assert failing.left == 1
    with pytest.raises(InputError, match="does not say how many"):
        connected_cluster("local:0", print).__enter__()
    assert failing.left == 0


def test_a_failed_client_is_gone_before_another_one_connects(failing, monkeypatch):
    monkeypatch.setattr(failing, "fails", False)
    with connected_cluster("tcp://127.0.0.1:1", print) as connected:
        monkeypatch.setattr(failing, "fails", True)
        for _ in range(2):
            with pytest.raises(InputError, match="no scheduler answers"):
                connected._connect(1.0)
    assert failing.before == [0, 0, 0]


def test_a_tls_scheduler_with_certificates_from_the_sweep_file(tmp_path):
    """And not without them."""
    from distributed import Security

    made = Security.temporary()
    files = {"ca_file": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = tmp_path / "some.toml"
    lines = "".join(f"{name} = '{name}'\n" for name in files)
    path.write_text(f"[cluster]\n{lines}{GRID}")
    sweep = read_sweep(path)
    address = f"tls://127.0.0.1:{(port := free_port())}"
    words = ("--tls-ca-file", tmp_path / "ca_file", "--tls-cert", tmp_path / "cert")
    words = (*words, "--tls-key", tmp_path / "key")
    with (
        dask("scheduler", "--host", "127.0.0.1", "--protocol", "tls", "--port", port, *words),
        dask("worker", address, "--nthreads", 1, "--no-nanny", *words),
    ):
        wait_for(port)
        other = Security.temporary()
        (tmp_path / "other").write_text(other.tls_client_cert)
        (tmp_path / "other-key").write_text(other.tls_client_key)
        stranger = cluster_address.TlsFiles(
            tmp_path / "ca_file", tmp_path / "other", tmp_path / "other-key"
        )
        with (
            pytest.raises(InputError, match="the certificates do not fit"),
            connected_cluster(address, print, stranger),
        ):
            pass
        with connected_cluster(address, print, sweep.tls) as connected:
            run_sweep(sweep, tmp_path / "far.sqlite", ClusterExecutor(connected, "native"))
    run_sweep(sweep, tmp_path / "near.sqlite", "native")
    assert table(tmp_path / "far.sqlite") == table(tmp_path / "near.sqlite")


def test_without_certificates_there_is_no_local_cluster(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    says = "needs the package cryptography, for certificates that keep other users out"
    with pytest.raises(InputError, match=says), connected_cluster("local:1", print):
        pass


def test_without_the_package_there_is_a_remedy(command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = tmp_path / "some.toml"
    path.write_text("[grid]\nitems = 16\nd_model = 8\nheads = 1\nkey_dim = 1\n")
    code, _, err = command("sweep", path, "--cluster", "local:2")
    assert code == 2
    assert err.endswith("install it with: pip install distributed cryptography\n")


def test_a_result_that_died_with_its_worker_is_not_waited_for():
    """A finished task's result lies with its worker until it is fetched."""

    class Lost:
        def result(self, timeout: float) -> None:
            raise TimeoutError

    made = Cluster(Silent("two"), None, print)
    assert made._result("one", Lost()) == []
