"""The screen of `isthmus ps`: the status of each server of a running isthmus, for people."""

from __future__ import annotations

import textwrap
from typing import Final

from ..base.output import plain
from .http_client import Json, aligned, duration, shown
from .server_table import WIDTH

HEADS: Final = ["ID", "WORKER", "STATE", "SPEAKS", "SESSIONS", "CALLS", "UPTIME", "STARTS", "FAILURES"]
_KINDS: Final = {"pipe": "stdio", "transparent": "-"}
"""Names shown for kinds of servers that have another one in JSON."""


def table(servers: list[Json]) -> str:
    """Formats the servers as a table, and the last error of each below it. A server of several workers has a row for
    each of them."""
    lines = [one for server in servers for one in (_workers(server) or [server])]
    rows = [HEADS, *(row for one in lines for row in (_row(one), *map(_url_row, _urls(one))))]
    if not any("worker" in one for one in lines):
        rows = [[row[0], *row[2:]] for row in rows]
    errors = [text for one in lines for each in (one, *_urls(one)) for text in _error(each)]
    return "\n".join([aligned(rows), *(["", *dict.fromkeys(errors)] if errors else [])])


def _row(server: Json) -> list[str]:
    state = "stopping" if server.get("status") == "stopping" else server["state"]
    uptime_s = server.get("uptime_s")
    cells = [
        server.get("name"),
        server.get("worker"),
        state,
        _spoken(server),
        server.get("sessions"),
        server.get("in_flight"),
        duration(uptime_s) if isinstance(uptime_s, (int, float)) else None,
        server.get("starts"),
        server.get("failures"),
    ]
    return list(map(shown, cells))


def _workers(server: Json) -> list[Json]:
    """Returns what the server is at each worker; nothing if there is one process."""
    workers = server.get("workers")
    found = [one for one in workers if isinstance(one, dict) and "state" in one] if isinstance(workers, list) else []
    return [{**one, "name": server.get("name")} for one in found]


def _spoken(server: Json) -> str:
    """Returns the transport, and the revision of the open sessions, or the latest that it was found to speak."""
    kind, eras = server.get("kind"), server.get("eras")
    found = [one for one in eras.values() if isinstance(one, str)] if isinstance(eras, dict) else []
    revision = server.get("protocol_version") or max(found, default="")
    return f"{_KINDS.get(str(kind), kind or '-')} {revision}".rstrip()


def _urls(server: Json) -> list[Json]:
    """Returns the URLs of a server that has several."""
    urls = server.get("urls")
    return [url for url in urls if isinstance(url, dict)] if isinstance(urls, list) else []


def _url_row(url: Json) -> list[str]:
    known = {0: f"  {url.get('name')}", 2: url.get("state"), 4: url.get("sessions"), 8: url.get("failures")}
    return [shown(known.get(column)) for column in range(len(HEADS))]


def _error(one: Json) -> list[str]:
    text = one.get("last_error")
    if not text:
        return []
    return textwrap.wrap(
        plain(f"{one.get('name')}: {text}"),
        WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
