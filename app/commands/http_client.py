"""A client of the operator pages of a running isthmus, and what its tables are made with.

The commands `ps`, `start`, `stop`, `restart`, `tasks` (`tasks`), `files` (`files_over_http`), `connect-info`, `tail`
and `top` (`app/terminal`) use it.
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
from ..base.output import plain

READ_TIMEOUT_S: Final = 10.0
ACT_TIMEOUT_S: Final = 600.0
"""Longer than the start timeout of a server: a start is answered when the server is up or has failed."""
ERROR_MAX_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 64 * 1024
PREFIX_MIN_CHARS: Final = 8
"""Characters of the beginning of an id that may stand for it: two ids practically never share so many."""
CANDIDATES_SHOWN: Final = 5

DONE: Final = {"start": "runs", "stop": "is stopped", "restart": "runs again"}

Json = dict[str, Any]

START_PAGE: Final = "start isthmus with --ui, or name the address of its live page with --url"
REASON_MAX_CHARS: Final = 300
"""The most characters of a refusal that are shown."""


class Unreachable(Failed):
    """No isthmus answers there at the moment."""


class Isthmus(NamedTuple):
    """A running isthmus.

    Attributes:
        url: its URL as shown to people, without credentials.
        address: the address of its listener, or the path of its Unix domain socket.
        token: the token to present, if any.
        is_page: the listener is to be that of its live page.
    """

    url: str
    address: Address | str
    token: str | None
    is_page: bool = False

    def servers(self) -> list[Json]:
        """Returns each server as `GET /servers` shows it."""
        listed = self.ask("GET", "/servers").get("servers")
        if not isinstance(listed, list) or not all(isinstance(one, dict) and "state" in one for one in listed):
            raise self.no_isthmus("it lists no servers")
        return listed

    def act(self, action: str, id: str) -> Json:
        """Starts, stops or restarts a server. Returns the body of the response, with the server's state afterwards."""
        return self.ask("POST", f"/servers/{quote(id, safe='')}/{action}", ACT_TIMEOUT_S)

    def ask(self, method: str, path: str, timeout_s: float = READ_TIMEOUT_S) -> Json:
        """Sends a request. Returns the JSON object in the response.

        Raises:
            Failed: there is no response of status 200 with a JSON object; the message says what is wrong.
        """
        decoded = _decoded(self.body(method, path, timeout_s))
        if isinstance(decoded, dict):
            return decoded
        raise self._refused(200, decoded)

    def body(self, method: str, path: str, timeout_s: float = READ_TIMEOUT_S) -> bytes:
        """Sends a request. Returns the body of the response.

        Raises:
            Failed: as `ask`, whatever the body is.
        """
        with self._requested(method, path, timeout_s) as response:
            status, body = response.status, response.read()
        if status == 200:
            return body
        raise self._refused(status, _decoded(body))

    def status_of(self, path: str) -> int:
        """Returns the status of a page for somebody without a token.

        Raises:
            Failed: there is no response.
        """
        with self._replace(token=None)._requested("GET", path, READ_TIMEOUT_S) as response:
            return response.status

    def stream(self, path: str, timeout_s: float = READ_TIMEOUT_S) -> Iterator[bytes]:
        """Yields the bytes of a response body. A body that breaks off ends without an error.

        Raises:
            Failed: as `ask`, on the first step.
        """
        with self._requested("GET", path, timeout_s) as response:
            if response.status != 200:
                raise self._refused(response.status, _decoded(response.read(ERROR_MAX_BYTES)))
            while chunk := response.read(CHUNK_BYTES):
                yield chunk

    def _refused(self, status: int, body: object) -> Failed:
        """Returns the error for a response of this status and decoded body."""
        if not isinstance(body, dict) or status == 200:
            return self.no_isthmus(f"it answers with HTTP status {status}")
        if status == 401:
            reason = str(body.get("error", "it is another"))[:REASON_MAX_CHARS]
            if self.token is None:
                return Failed(f"{self.url} wants a token: give it as --token, or in ISTHMUS_TOKEN; it says: {reason}")
            return Failed(f"{self.url} does not take this token: {reason}")
        if status == 404 and body.get("code") == "not_found" and str(body.get("detail")).startswith("got path "):
            if self.is_page:
                return Failed(f"{self.url} is an isthmus, but no live page: {START_PAGE}")
            return Failed(
                f"{self.url} shows its servers, tasks and files to nobody here: set core.management.token there, and "
                "give it as --token"
            )
        if "error" not in body or body.get("code") != status:
            return self.no_isthmus(f"it answers with HTTP status {status}")
        return Failed(str(body["error"]))

    @contextlib.contextmanager
    def _requested(self, method: str, path: str, timeout_s: float) -> Iterator[http.client.HTTPResponse]:
        connection, base = _connection(self.address, timeout_s)
        headers = {} if method == "GET" else {"X-Requested-With": "isthmus"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, base + path, headers=headers)
            yield connection.getresponse()
        except (ConnectionRefusedError, FileNotFoundError):
            todo = START_PAGE if self.is_page else "start isthmus there, or name another --url"
            raise Unreachable(f"nothing listens at {self.url}: {todo}") from None
        except TimeoutError:
            raise Unreachable(f"{self.url} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.url} cannot be reached: {error.strerror or error}") from None
        except http.client.IncompleteRead:
            raise Unreachable(f"{self.url} broke off its response") from None
        except http.client.HTTPException:
            raise self.no_isthmus("it speaks no HTTP") from None
        finally:
            connection.close()

    def no_isthmus(self, why: str) -> Failed:
        return Failed(f"what listens at {self.url} is no isthmus: {why}")


def _decoded(body: bytes) -> object:
    """Returns what the body says as JSON; None if it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _connection(address: Address | str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """Returns a connection to the address, and the prefix of paths there."""
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


def named(items: list[Json], given: str, what: str, missing: str) -> Json:
    """Returns the item with this id, or the only one whose id begins with it.

    Args:
        what: the plural noun for the items, for messages.
        missing: the message if no item matches.

    Raises:
        Failed: no item matches, or more than one.
    """
    found = [one for one in items if one["id"].startswith(given)]
    whole = [one for one in found if one["id"] == given]
    if len(whole or found) == 1:
        return (whole or found)[0]
    if not found:
        raise Failed(missing)
    ids = ", ".join(one["id"] for one in found[:CANDIDATES_SHOWN])
    more = f" and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
    raise Failed(f"{given} is the beginning of {len(found)} {what}, give more of it: {ids}{more}")


def aligned(rows: list[list[str]]) -> str:
    """Formats rows as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(itertools.starmap(str.ljust, zip(row, widths, strict=True))).rstrip() for row in rows)
    return "\n".join(lines)


def shown(cell: object) -> str:
    return plain(str(cell)) if cell not in (None, "") else "-"


def duration(seconds: float) -> str:
    """Formats a duration in its two largest units, such as "2h 5m"."""
    rest = int(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts.append(f"{count}{unit}")
    first = next((i for i, part in enumerate(parts) if part[0] != "0"), len(parts) - 1)
    return " ".join(parts[first : first + 2])


def moment(at_unix: object, away_s: object = None, direction: str = "") -> str | None:
    """Formats a date and time in UTC, and how far away it is; None if it is no usable time."""
    if not isinstance(at_unix, (int, float)):
        return None
    try:
        text = datetime.fromtimestamp(at_unix, UTC).isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a year that `datetime` does not reach
        return None
    return f"{text} ({duration(away_s)} {direction})" if isinstance(away_s, (int, float)) else text
