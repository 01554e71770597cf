"""Connections to dask clusters: processes on this machine, or a scheduler elsewhere."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headcount.errors import InputError
from headcount.sweeps.cluster import Cluster, Notice
from headcount.sweeps.cluster_address import SchedulerAddress, TlsFiles

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

_START = 120.0  # seconds that worker processes may take to start


@contextmanager
def connected_cluster(
    address: str, notice: Notice, tls: TlsFiles | None = None
) -> Iterator[Cluster]:
    """Workers at `local:N`, at `gpus`, or at a scheduler, `tls://host:port` or `tcp://…`.

    `local:N` are N processes on this machine, `gpus` is one for each of its CUDA devices.
    `tls` has the certificates of a tls:// scheduler; without it, dask's environment names them.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError(
            "--cluster needs the package distributed; install it with: "
            "pip install distributed cryptography"
        ) from None
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith(("distributed", "tornado")):
            # What matters is reported in our own words.
            logging.getLogger(name).setLevel(logging.CRITICAL)
    _collect_failed_clients()
    if (own := _on_this_machine(address)) is not None:
        with own as local, Client(local, set_as_default=False) as client:
            yield Cluster(client, None, notice)
        return
    scheduler = SchedulerAddress.of(address)
    security = scheduler.security(tls)
    if scheduler.is_open:
        notice(
            f"{scheduler} is neither encrypted nor authenticated: whoever reaches it can run code "
            "here and on its workers; use tls:// (SECURITY.md)"
        )

    def connect(timeout: float) -> Client:
        scheduler.require_answer(security)
        _collect_failed_clients()
        try:
            return Client(str(scheduler), timeout=timeout, security=security, set_as_default=False)
        except Exception as error:  # dask lets out whatever the other side makes it run into
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"no scheduler answers at {scheduler} ({reason}); check its version and address"
            ) from None

    cluster = Cluster(connect(10.0), connect, notice)
    try:
        yield cluster
    finally:
        cluster.disconnect()


def _collect_failed_clients() -> None:
    """Collect clients that found no scheduler, before another is made.

    A client closes itself when it is collected, and takes a lock for it that the next one holds
    while it starts: collected at that moment, it would deadlock.
    """
    gc.collect()


def _on_this_machine(address: str) -> LocalCluster | None:
    """The workers of `local:N` or `gpus`, being started; None for another address."""
    kind, _, rest = address.partition(":")
    if kind == "local":
        if not rest.isdecimal() or not 1 <= len(rest) <= 4 or not 1 <= int(rest) <= 1024:
            raise InputError(
                f"--cluster {address} does not say how many processes; "
                "write local:4, up to local:1024"
            )
        return _local_cluster(int(rest))
    return _gpu_cluster(_devices()) if address == "gpus" else None


def _not_started(workers: int, error: Exception) -> InputError:
    return InputError(
        f"the {workers} worker processes did not start ({error}); try fewer, or try again"
    )


def _devices() -> list[str]:
    """The CUDA devices that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise InputError("--cluster gpus: torch sees no CUDA device; use local:4 for the CPU")
    if named := os.environ.get("CUDA_VISIBLE_DEVICES"):
        # CUDA ignores what follows a name that it does not know.
        return [part.strip() for part in named.split(",")][:count]
    return [str(number) for number in range(count)]


def _gpu_cluster(devices: Sequence[str]) -> LocalCluster:
    """A worker process per device, which sees no other.

    dask gives all workers of a local cluster one environment, so these are added one by one. They
    are not daemonic: such a process may not start those that compile kernels on the other cores.
    """
    from dask import config

    cluster = _local_cluster(0)
    try:
        for device in devices:
            described: dict[Any, Any] = cluster.new_worker_spec()
            for name, worker in described.items():
                options = {**worker["options"], "env": {"CUDA_VISIBLE_DEVICES": device}}
                cluster.worker_spec[name] = {**worker, "options": options}
        with config.set({"distributed.worker.daemon": False}):
            cluster.scale(len(devices))  # starts those that are described
            cluster.wait_for_workers(len(devices), timeout=_START)
    except BaseException as error:
        cluster.close()
        if isinstance(error, (RuntimeError, OSError, TimeoutError)):
            raise _not_started(len(devices), error) from error
        raise
    return cluster


def _local_cluster(workers: int) -> LocalCluster:
    """Worker processes on this machine, which trust only each other and this process.

    Other users of the machine reach the ports too. Certificates that live as long as the cluster,
    in memory, keep them out.
    """
    from dask import config
    from distributed import LocalCluster, Security

    try:
        security = Security.temporary()
    except ImportError:
        raise InputError(
            "a cluster on this machine needs the package cryptography, for certificates that keep "
            "other users out; install it with: pip install cryptography"
        ) from None
    routes = {f"distributed.{side}.http.routes": [] for side in ("scheduler", "worker")}
    try:
        with config.set(routes):  # the HTTP server cannot be switched off, but its pages can
            return LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                preload=["headcount.sweeps.worker"],
                silence_logs=logging.CRITICAL,
            )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise _not_started(workers, error) from error
