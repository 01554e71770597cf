"""Where a dask scheduler is, what it must prove, and whether one answers there.

A scheduler runs what any client sends it, and its workers send back pickles: whoever can connect
can run code on all sides (SECURITY.md). Local clusters therefore get certificates of their own.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import struct
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headcount.errors import InputError
from headcount.files import existing_file
from headcount.sweeps.toml_table import TomlTable

if TYPE_CHECKING:
    from distributed import Security

_ANSWER = 5.0  # seconds that a scheduler may take to greet
_SILENCE = 0.5  # seconds after which it is asked whether it speaks HTTP
_QUESTION = b"GET / HTTP/1.0\r\n\r\n"
_LONGEST_GREETING = 2**20  # bytes; what another protocol sends reads as far more
_KEYS = ("ca_file", "cert", "key")
_VARIABLES = tuple(
    f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in ("CA_FILE", "CLIENT__CERT", "CLIENT__KEY")
)


@dataclass(frozen=True)
class TlsFiles:
    """The certificates of a tls:// scheduler: who signed it, and what this client shows it."""

    ca_file: Path
    cert: Path
    key: Path


def tls_files(top: TomlTable, folder: Path) -> TlsFiles | None:
    """The [cluster] table of a sweep file, whose paths are relative to the file."""
    if "cluster" not in top:
        return None
    table = TomlTable(f"{top.place}: [cluster]", top.get("cluster"), _KEYS)
    paths = [folder / str(table.required(name, str)[0]) for name in _KEYS]
    return TlsFiles(*(table.located(lambda path=path: existing_file(path)) for path in paths))


@dataclass(frozen=True)
class SchedulerAddress:
    """tcp://host:port or tls://host:port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> SchedulerAddress:
        """The parts of an address; anything else is refused."""
        try:
            parts = urlsplit(address)
        except ValueError:  # brackets that do not close
            parts = urlsplit("")
        if not parts.scheme or not parts.netloc:
            raise InputError(
                f"--cluster {address} is not an address; write local:4 or tls://host:8786"
            )
        if parts.scheme not in ("tcp", "tls"):
            raise InputError(
                f"--cluster {address}: {parts.scheme}:// is unknown; use tls:// or tcp://"
            )
        try:
            port = parts.port
        except ValueError:
            port = None
        if port is None or not parts.hostname or parts.path.strip("/"):
            raise InputError(
                f"--cluster {address} does not say host and port; write {parts.scheme}://host:8786"
            )
        return cls(parts.scheme, parts.hostname, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether others may reach it, and no certificate keeps them out."""
        if self.scheme == "tls" or self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name
            return True

    def security(self, files: TlsFiles | None) -> Security | None:
        """What dask needs for tls://: the files, or what its environment variables name."""
        from distributed import Security

        if self.scheme == "tcp":
            return None
        if files is not None:
            return Security(
                require_encryption=True,
                tls_ca_file=str(files.ca_file),
                tls_client_cert=str(files.cert),
                tls_client_key=str(files.key),
            )
        found = Security(require_encryption=True)
        given = [found.tls_ca_file, found.tls_client_cert, found.tls_client_key]
        if not all(given):
            raise InputError(
                f"{self} needs certificates; name them in the file's [cluster] table "
                f"({', '.join(_KEYS)}) or in {', '.join(_VARIABLES)}"
            )
        for text in given:
            if "\n" not in text:  # dask takes the certificate itself, too
                existing_file(os.path.expanduser(text))
        return found

    def require_answer(self, security: Security | None) -> None:
        """Refuse, at once, an address at which no dask scheduler greets.

        dask would try again for many seconds, and take what another server says for a length.
        """
        try:
            with closing(self._connected(security)) as opened:
                greeting = _greeting(opened)
            (length,) = struct.unpack("<Q", greeting)
        except ssl.SSLError as error:
            raise InputError(
                f"{self}: the certificates do not fit ({error.reason or error}); check them, and "
                "that the scheduler was started with --tls-ca-file, --tls-cert and --tls-key"
            ) from None
        except TimeoutError:
            raise InputError(
                f"{self}: nothing greets there within {_ANSWER:.0f} s; check host and port, and "
                f"that the scheduler speaks {self.scheme}"
            ) from None
        except (OSError, struct.error, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it hung up"
            raise InputError(
                f"no scheduler answers at {self} ({reason}); start one with: "
                "dask scheduler --host 127.0.0.1, or see SECURITY.md for other machines"
            ) from None
        if greeting.startswith(b"HTTP/"):
            raise InputError(
                f"{self}: what answers there speaks HTTP, as a scheduler's dashboard does; give "
                "the port that the scheduler itself listens on (by default 8786)"
            )
        if length > _LONGEST_GREETING:
            raise InputError(
                f"{self}: what answers there is not a dask scheduler; check host and port"
            )

    def _connected(self, security: Security | None) -> socket.socket:
        opened = socket.create_connection((self.host, self.port), timeout=_ANSWER)
        if security is None:
            return opened
        try:
            context: ssl.SSLContext = security.get_connection_args("client")["ssl_context"]
            return context.wrap_socket(opened, server_hostname=self.host)
        except BaseException:
            opened.close()
            raise


def _greeting(opened: socket.socket) -> bytes:
    """The first eight bytes from the other side, or fewer if it hangs up before.

    A scheduler speaks first, and an HTTP server waits for a request, which it gets.
    """
    found = b""
    with suppress(TimeoutError):
        opened.settimeout(_SILENCE)
        found = opened.recv(8)
        if not found:
            return found
    opened.settimeout(_ANSWER)
    if not found:
        opened.sendall(_QUESTION)
    while len(found) < 8 and (part := opened.recv(8 - len(found))):
        found += part
    return found
