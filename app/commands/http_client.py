"""`isthmus ps`, `start`, `stop` and `restart`: the servers of an isthmus that runs already, asked over HTTP.

`isthmus tasks` and `isthmus files` ask in the same way (`remote_tasks`, `remote_files`).
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from ...core.wire.http.url import Address
from ..base.errors import Failed
from ..base.output import plain, short

READ_TIMEOUT_S: Final = 10.0
ACT_TIMEOUT_S: Final = 600.0
"""A start is answered when the server is up or has failed, which its own time limit decides."""
ERROR_MAX_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 64 * 1024
PREFIX_MIN_CHARS: Final = 8
"""The beginning of an id that may stand for it: as good as never are there two of the same."""
CANDIDATES_SHOWN: Final = 5

DONE: Final = {"start": "runs", "stop": "is stopped", "restart": "runs again"}

Json = dict[str, Any]


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
        with self._requested(method, path, timeout_s) as response:
            status, body = response.status, response.read()
        try:
            said = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = None
        if status == 200 and isinstance(said, dict):
            return said
        raise self._refused(status, said)

    def stream(self, path: str, timeout_s: float = READ_TIMEOUT_S) -> Iterator[bytes]:
        """The bytes of a page that is no JSON. Where they break off, nothing tells.

        Raises:
            Failed: as `ask`, on the first step.
        """
        with self._requested("GET", path, timeout_s) as response:
            if response.status != 200:
                try:
                    said = msgspec.json.decode(response.read(ERROR_MAX_BYTES))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    said = None
                raise self._refused(response.status, said)
            while chunk := response.read(CHUNK_BYTES):
                yield chunk

    def _refused(self, status: int, said: object) -> Failed:
        """What went wrong, if a page says this."""
        if not isinstance(said, dict) or status == 200:
            return self.no_isthmus(f"it answers with HTTP status {status}")
        if status == 401:
            if self.token is None:
                return Failed(f"{self.url} wants a token: give it as --token, or in ISTHMUS_TOKEN")
            return Failed(f"{self.url} does not take this token: it is another than its core.management.token")
        if status == 404 and "endpoints" in said:
            return Failed(
                f"{self.url} shows its servers, tasks and files to nobody here: set core.management.token there, and "
                "give it as --token"
            )
        if "error" not in said or said.get("code") != status:
            return self.no_isthmus(f"it answers with HTTP status {status}")
        return Failed(plain(str(said["error"])))

    @contextlib.contextmanager
    def _requested(self, method: str, path: str, timeout_s: float) -> Iterator[http.client.HTTPResponse]:
        connection, base = _connection(self.address, timeout_s)
        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, base + path, headers=headers)
            yield connection.getresponse()
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


def named(told: list[Json], given: str, what: str, missing: str) -> Json:
    """The one with this id, or the one whose id begins so.

    Args:
        what: they are, in the plural.
        missing: what to say if there is none.

    Raises:
        Failed: there is none, or more than one.
    """
    found = [one for one in told if one["id"].startswith(given)]
    whole = [one for one in found if one["id"] == given]
    if len(whole or found) == 1:
        return (whole or found)[0]
    if not found:
        raise Failed(missing)
    ids = ", ".join(plain(one["id"]) for one in found[:CANDIDATES_SHOWN])
    more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
    raise Failed(f"{given} is the beginning of {len(found)} {what}, give more of it: {ids}{more}")


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


def moment(at_unix: object, away_s: object = None, direction: str = "") -> str | None:
    """A time on the calendar, and how far away it is."""
    if not isinstance(at_unix, (int, float)):
        return None
    try:
        told = datetime.fromtimestamp(at_unix, UTC).isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return None
    return f"{told} ({duration(away_s)} {direction})" if isinstance(away_s, (int, float)) else told
