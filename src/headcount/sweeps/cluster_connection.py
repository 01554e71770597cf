"""Connections to dask clusters: processes on this machine, or a scheduler elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headcount.errors import InputError
from headcount.sweeps.cluster import Cluster, Notice
from headcount.sweeps.cluster_address import SchedulerAddress, TlsFiles

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


@contextmanager
def connected_cluster(
    address: str, notice: Notice, tls: TlsFiles | None = None
) -> Iterator[Cluster]:
    """Workers at `local:N` (N processes here) or at a scheduler, `tls://host:port` or `tcp://…`.

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
    kind, _, rest = address.partition(":")
    if kind == "local":
        if not rest.isdecimal() or not 1 <= len(rest) <= 4 or not 1 <= int(rest) <= 1024:
            raise InputError(
                f"--cluster {address} does not say how many processes; "
                "write local:4, up to local:1024"
            )
        with _local_cluster(int(rest)) as local, Client(local, set_as_default=False) as client:
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
            "--cluster local:N needs the package cryptography, for certificates that keep other "
            "users out; install it with: pip install cryptography"
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
        raise InputError(
            f"the {workers} worker processes did not start ({error}); try fewer, or try again"
        ) from error
