"""The table of servers that the screens of `serve`, `wrap` and `check` begin with: a row for each server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ..base.output import cut, plain, short
from ..config.settings import Server, Transport
from ..runtime.probe import ServerReport
from .check_adapters import awaits_clients, own_tools, visible_tools

WIDTH: Final = 80
"""Columns of a screen, which every terminal has."""
ID_MIN: Final = 12
"""Columns that the id of a server keeps where a row would be too wide."""

_SHOWN: Final[Mapping[Transport | None, str]] = {"sse": "sse", "websocket": "websocket", "unix": "unix"}
"""Names shown for transports of a URL; any other transport is shown as http."""


_STATES: Final = re.compile(
    r"^((?:SERVER|STORE) +STATE.*$|WARNING)|^( {4}|\S+ +)(ready|waits|FAILED)(?= )", re.MULTILINE
)
_COLOURS: Final = {"ready": "32", "waits": "33", "WARNING": "33", "FAILED": "31"}
_BOLD: Final = "1"


class Row(NamedTuple):
    """The cells of a row.

    Attributes:
        state: `ready`, `FAILED`, `waits` (for a client with credentials), `relayed` (unread) or `not asked`.
        speaks: the transport and the revision.
        tools: the number of tools that clients see; "-" if it is not known.
        rest: the last cell, such as the URL.
    """

    id: str
    state: str
    speaks: str
    tools: str
    rest: str


HEADS: Final = Row("SERVER", "STATE", "SPEAKS", "TOOLS", "")


def row_of(server: Server, report: ServerReport, rest: str = "") -> Row:
    tools = "-" if report.tools is None or report.problem else str(len(visible_tools(server, report)))
    return Row(server.id, state_of(server, report), spoken(server, report), tools, rest)


def state_of(server: Server, report: ServerReport) -> str:
    if awaits_clients(server, report):
        return "waits"
    if report.problem:
        return "FAILED"
    if report.is_transparent:
        return "relayed"
    return "not asked" if report.is_unasked else "ready"


def spoken(server: Server, report: ServerReport) -> str:
    """Returns the transport of a server, and the revision that clients with sessions use it in, or the latest of it."""
    kind = "stdio" if server.upstream.command is not None else _SHOWN.get(server.upstream.transport, "http")
    revision = report.eras.get(report.era) or max(report.eras.values(), default="")
    return f"{kind} {plain(short(revision))}".rstrip()


def tool_names(server: Server, report: ServerReport, columns: int) -> str:
    """Returns the names of the tools that clients see, as many as fit, and how many more there are."""
    tools = visible_tools(server, report)
    hidden = len(own_tools(server, report)) - len(tools)
    return joined([plain(short(tool)) for tool in tools], columns, f" ({hidden} hidden)" if hidden else "")


def joined(names: Sequence[str], columns: int, tail: str = "") -> str:
    """Joins names with commas. Those that do not fit into `columns` are counted: "a, b and 14 more"."""
    for count in range(len(names), 0, -1):
        end = (f" and {len(names) - count} more" if count < len(names) else "") + tail
        line = ", ".join(names[:count])
        if len(line + end) <= columns:
            return line + end
        if count == 1:
            return cut(line, max(ID_MIN, columns - len(end))) + end
    return tail.strip()


def table(rows: Sequence[Row], *, last: str, columns: int = WIDTH) -> list[str]:
    """Formats rows under their headings. Ids are cut where the table would be wider than `columns`.

    Args:
        last: the heading of the last cell.
    """
    shown = [HEADS._replace(rest=last), *(row._replace(id=plain(row.id)) for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(HEADS))]
    too_wide = sum(widths) + 2 * (len(widths) - 1) - columns
    widths[0] = max(min(ID_MIN, widths[0]), widths[0] - max(0, too_wide))
    return [_line(row._replace(id=cut(row.id, widths[0])), widths) for row in shown]


def painted(screen: str) -> str:
    """Returns a screen with its headings, states and warnings in colour."""
    return _STATES.sub(_painted, screen)


def _painted(found: re.Match[str]) -> str:
    before, word = found[2] or "", found[3] or found[1]
    return f"{before}\x1b[{_COLOURS.get(word, _BOLD)}m{word}\x1b[0m"


def rest_columns(rows: Sequence[Row], columns: int = WIDTH) -> int:
    """Returns the columns that are left for the last cell."""
    shown = [HEADS, *rows]
    return columns - sum(max(len(row[i]) for row in shown) + 2 for i in range(len(HEADS) - 1))


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = [
        text.rjust(width) if i == 3 else text.ljust(width)
        for i, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
