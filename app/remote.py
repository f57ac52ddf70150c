"""`isthmus ps`, `start`, `stop` and `restart`: the servers of an isthmus that runs already, asked over HTTP.

`isthmus tasks` asks in the same way (`remote_tasks`).
"""

from __future__ import annotations

import http.client
import itertools
import socket
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from ..core.wire.url import Address
from .screen import plain

READ_TIMEOUT_S: Final = 10.0
ACT_TIMEOUT_S: Final = 600.0
"""A start is answered when the server is up or has failed, which its own time limit decides."""
ERROR_MAX_CHARS: Final = 60

DONE: Final = {"start": "runs", "stop": "is stopped", "restart": "runs again"}

Json = dict[str, Any]


class Failed(Exception):
    """It cannot be asked, or does not do what it is asked for; the message says why and what would help."""


class Isthmus(NamedTuple):
    """Where one runs.

    Attributes:
        url: for people.
        address: of its listener, or the path of its Unix domain socket.
        token: the secret that it wants to be shown, if it wants one.
    """

    url: str
    address: Address | str
    token: str | None

    def servers(self) -> list[Json]:
        """How its servers fare, each as `GET /servers` tells it."""
        listed = self.ask("GET", "/servers").get("servers")
        if not isinstance(listed, list) or not all(isinstance(one, dict) and "state" in one for one in listed):
            raise self.no_isthmus("it lists no servers")
        return listed

    def act(self, action: str, id: str) -> Json:
        """Start, stop or restart a server. Returns what is told of it afterwards."""
        return self.ask("POST", f"/servers/{quote(id, safe='')}/{action}", ACT_TIMEOUT_S)

    def ask(self, method: str, path: str, timeout_s: float = READ_TIMEOUT_S) -> Json:
        """What a page says.

        Raises:
            Failed: nothing of use; it says what is wrong.
        """
        status, body = self._exchange(method, path, timeout_s)
        try:
            said = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise self.no_isthmus(f"it answers with HTTP status {status}")
        if status == 200:
            return said
        if status == 401:
            if self.token is None:
                raise Failed(f"{self.url} wants a token: give it as --token, or in ISTHMUS_TOKEN")
            raise Failed(f"{self.url} does not take this token: it is another than its core.management.token")
        if status == 404 and "endpoints" in said:
            raise Failed(
                f"{self.url} shows its servers and tasks to nobody here: set core.management.token there, and give it "
                "as --token"
            )
        if "error" not in said or said.get("code") != status:
            raise self.no_isthmus(f"it answers with HTTP status {status}")
        raise Failed(plain(str(said["error"])))

    def _exchange(self, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
        connection, base = _connection(self.address, timeout_s)
        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, base + path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (ConnectionRefusedError, FileNotFoundError):
            raise Failed(f"nothing listens at {self.url}: start isthmus there, or name another --url") from None
        except TimeoutError:
            raise Failed(f"{self.url} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise Failed(f"{self.url} cannot be reached: {error.strerror or error}") from None
        except http.client.HTTPException:
            raise self.no_isthmus("it speaks no HTTP") from None
        finally:
            connection.close()

    def no_isthmus(self, why: str) -> Failed:
        return Failed(f"what listens at {self.url} is no isthmus: {why}")


def _connection(address: Address | str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """To what listens there, and what its paths begin with."""
    if isinstance(address, str):
        return _SocketConnection(address, timeout_s), ""
    make = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    return make(address.host, address.port, timeout=timeout_s), address.target.decode().rstrip("/")


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def table(servers: list[Json]) -> str:
    """A line for each server, below one of headings."""
    heads = [
        "ID",
        "KIND",
        "ERAS",
        "STATE",
        "SESSIONS",
        "IN FLIGHT",
        "PIDS",
        "UPTIME",
        "STARTS",
        "FAILURES",
        "LAST ERROR",
    ]
    return aligned([heads, *map(_row, servers)])


def aligned(rows: list[list[str]]) -> str:
    """Rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(itertools.starmap(str.ljust, zip(row, widths, strict=True))).rstrip() for row in rows)
    return "\n".join(lines)


def _row(server: Json) -> list[str]:
    state = "stopping" if server.get("status") == "stopping" else server["state"]
    pids = server.get("pids") or []
    uptime_s = server.get("uptime_s")
    cells = [
        server.get("name"),
        server.get("kind"),
        ",".join(eras) if isinstance(eras := server.get("eras"), dict) else eras,
        state,
        server.get("sessions"),
        server.get("in_flight"),
        ",".join(map(str, pids)) if isinstance(pids, list) else pids,
        duration(uptime_s) if isinstance(uptime_s, (int, float)) else None,
        server.get("starts"),
        server.get("failures"),
        short(str(server.get("last_error") or "")),
    ]
    return list(map(shown, cells))


def shown(cell: object) -> str:
    return plain(str(cell)) if cell not in (None, "") else "-"


def duration(seconds: float) -> str:
    """The two largest units of a time."""
    rest = int(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts.append(f"{count}{unit}")
    first = next((i for i, part in enumerate(parts) if part[0] != "0"), len(parts) - 1)
    return " ".join(parts[first : first + 2])


def short(text: str) -> str:
    return text if len(text) <= ERROR_MAX_CHARS else text[: ERROR_MAX_CHARS - 1] + "…"
