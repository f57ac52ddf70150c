"""The screens of `check`, as tests look at them: each line that was wrapped is one line again."""

from __future__ import annotations

import re

from isthmus.app.commands import check_screen
from isthmus.app.config.settings import Server, Settings
from isthmus.app.runtime.probe import ServerReport


def unwrapped(screen: str) -> str:
    return re.sub(r"\n {8,12}(?=\S)", " ", screen)


def cells_of(screen: str, id: str) -> list[str]:
    """Returns the cells of the row of a server."""
    rows = [re.split(r" {2,}", line) for line in screen.splitlines()]
    return next(row for row in rows if row[0] == id and len(row) > 3)


def described(settings: Settings, server: Server, report: ServerReport) -> list[str]:
    """Returns the cells of the row, the details and the warnings of a server."""
    lines = check_screen.lines_of(settings, [server], [report], with_eras=False)
    row = cells_of("\n".join(lines), server.id)
    warned = check_screen.all_warnings([server], [report])
    return ["  ".join(row[1:]), *unwrapped("\n".join([*_below(lines, server.id), *warned])).splitlines()]


def _below(lines: list[str], id: str) -> list[str]:
    heading = f"  {id}"
    return lines[lines.index(heading) + 1 :] if heading in lines else []
