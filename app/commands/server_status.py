"""The screen of `isthmus ps`: the status of each server of a running isthmus, for people."""

from __future__ import annotations

import textwrap
from typing import Final

from ..base.output import plain
from .http_client import Json, aligned, duration, shown
from .server_table import WIDTH

HEADS: Final = ["ID", "STATE", "SPEAKS", "SESSIONS", "CALLS", "UPTIME", "STARTS", "FAILURES"]
_KINDS: Final = {"pipe": "stdio", "transparent": "-"}
"""Names shown for kinds of servers that have another one in JSON."""


def table(servers: list[Json]) -> str:
    """Formats the servers as a table, and the last error of each below it."""
    rows = [row for server in servers for row in (_row(server), *map(_url_row, _urls(server)))]
    errors = [line for server in servers for one in (server, *_urls(server)) for line in _error(one)]
    return "\n".join([aligned([HEADS, *rows]), *(["", *errors] if errors else [])])


def _row(server: Json) -> list[str]:
    state = "stopping" if server.get("status") == "stopping" else server["state"]
    uptime_s = server.get("uptime_s")
    cells = [
        server.get("name"),
        state,
        _spoken(server),
        server.get("sessions"),
        server.get("in_flight"),
        duration(uptime_s) if isinstance(uptime_s, (int, float)) else None,
        server.get("starts"),
        server.get("failures"),
    ]
    return list(map(shown, cells))


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
    known = {0: f"  {url.get('name')}", 1: url.get("state"), 3: url.get("sessions"), 7: url.get("failures")}
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
