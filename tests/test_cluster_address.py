"""Addresses of clusters: what is refused, told apart and warned of."""

from __future__ import annotations

import socket
import threading
import time
from http.server import HTTPServer, SimpleHTTPRequestHandler

import pytest

from headcount.errors import InputError
from headcount.sweeps import cluster_address
from headcount.sweeps.cluster_connection import connected_cluster
from headcount.sweeps.file import read_sweep
from tests.sweep_runs import GRID

for package in ("distributed", "cryptography"):
    pytest.importorskip(package, reason=f"needs the package {package} (pip install {package})")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("local", "does not say how many processes; write local:4"),
        ("local:0", "does not say how many"),
        ("local:x", "does not say how many"),
        (f"local:{'9' * 5000}", "does not say how many"),
        ("here:8786", "is not an address; write local:4 or tls://host:8786"),
        ("tcp://[::1", "is not an address"),
        ("ftp://127.0.0.1:1", "ftp:// is unknown; use tls:// or tcp://"),
        ("tcp://127.0.0.1", "does not say host and port; write tcp://host:8786"),
        ("tcp://127.0.0.1:99999", "does not say host and port"),
        ("tcp://127.0.0.1:1", r"no scheduler answers at tcp://127.0.0.1:1 \(Connection refused\)"),
        ("tls://127.0.0.1:1", "needs certificates; name them in the file's"),
    ],
)
def test_a_wrong_address_gets_one_sentence_at_once(address, says):
    began = time.monotonic()
    with pytest.raises(InputError, match=says), connected_cluster(address, print):
        pass
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("greeting", "says"),
    [
        (b"", "nothing greets there within 0 s"),
        (b"HTTP/1.1 400 Bad Request", "what answers there speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2", "what answers there is not a dask scheduler"),
        (b"short", "no scheduler answers at"),
    ],
)
def test_what_is_not_a_scheduler_is_told_from_one(greeting, says, monkeypatch):
    if not greeting:
        monkeypatch.setattr(cluster_address, "_ANSWER", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            opened, _ = server.accept()
            with opened:
                opened.sendall(greeting)
                if not greeting:
                    time.sleep(1)

        threading.Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError, match=says), connected_cluster(address, print):
            pass


def test_an_http_server_is_told_from_a_scheduler_at_once():
    """It says nothing before it is asked: a dashboard's address is an easy mistake."""
    served = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=served.handle_request, daemon=True).start()
    began, address = time.monotonic(), f"tcp://127.0.0.1:{served.server_port}"
    says = "speaks HTTP, as a scheduler's dashboard does; give the port"
    with served, pytest.raises(InputError, match=says), connected_cluster(address, print):
        pass
    assert time.monotonic() - began < cluster_address._ANSWER


def test_a_scheduler_that_takes_its_time_is_waited_for(monkeypatch):
    monkeypatch.setattr(cluster_address, "_SILENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            opened, _ = server.accept()
            with opened:
                time.sleep(0.2)
                opened.sendall(b"\x09\0\0")
                time.sleep(0.1)
                opened.sendall(b"\0\0\0\0\0")
                opened.recv(100)

        threading.Thread(target=greet, daemon=True).start()
        address = cluster_address.SchedulerAddress("tcp", "127.0.0.1", server.getsockname()[1])
        address.require_answer(None)


def test_an_open_address_is_warned_of():
    said = list[str]()
    with (
        pytest.raises(InputError, match="no scheduler answers"),
        connected_cluster("tcp://no-such-host.invalid:8786", said.append),
    ):
        pass
    assert said == [
        "tcp://no-such-host.invalid:8786 is neither encrypted nor authenticated: whoever reaches "
        "it can run code here and on its workers; use tls:// (SECURITY.md)"
    ]
    assert not cluster_address.SchedulerAddress.of("tcp://127.1.2.3:1").is_open
    assert not cluster_address.SchedulerAddress.of("tcp://[::1]:1").is_open
    assert cluster_address.SchedulerAddress.of("tcp://10.0.0.1:1").is_open


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("ca_file = 'a'", r"\[cluster\]: cert is missing"),
        ("ca_file = 'a'\ncert = 'b'\nkey = 'c'", r"\[cluster\]: .*a: no such file"),
        ("cafile = 'a'", r"\[cluster\]: .*cafile"),
    ],
)
def test_wrong_cluster_tables(lines, says, tmp_path):
    (tmp_path / "some.toml").write_text(f"[cluster]\n{lines}\n{GRID}")
    with pytest.raises(InputError, match=says):
        read_sweep(tmp_path / "some.toml")
