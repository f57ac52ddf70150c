"""The lines about one server that stand below the table: what is wrong, how files are handled, and warnings."""

from __future__ import annotations

import textwrap
from typing import Final

from ..base.output import plain, short
from ..config.documents import without_credentials
from ..config.plan import to_rate_limits
from ..config.settings import Server, Settings
from ..runtime.probe import ServerReport
from .check_adapters import awaits_clients, misfits
from .describe_files import file_lines
from .server_table import WIDTH

_LABEL: Final = 8


def labelled(label: str, text: str) -> list[str]:
    """Returns `text` after a label, wrapped. Words are not broken, so that paths and URLs stay whole."""
    head = f"    {label:{_LABEL}}"
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines or [head.rstrip()]


def details(settings: Settings, server: Server, report: ServerReport, *, is_only: bool = False) -> list[str]:
    """Describes a server below the table, without its id. Nothing is returned if the table says all.

    Args:
        is_only: it is the only server, so there is room to say who it is.
    """
    lines: list[str] = []
    if awaits_clients(server, report):
        lines += labelled("server", f"answers only clients with credentials of their own (HTTP status {report.status})")
    elif report.problem:
        lines += labelled("FAILED", plain(report.problem))
    elif report.is_transparent:
        lines += labelled("server", f"transparent, at {plain(without_credentials(server.upstream.url or ''))}")
    elif is_only and not report.is_unasked:
        name = " ".join(short(part) for part in (report.name, report.version) if part) or "without a name"
        lines += labelled("server", plain(name))
    for address in report.addresses:
        failed = f": FAILED, {address.last_error}" if address.state == "ill" else ""
        text = f"{address.name}{failed or (': not tried' if address.state == 'unknown' else '')}"
        lines += labelled("url", plain(text))
    for limit in to_rate_limits(server):
        lines += labelled("limits", plain(str(limit)))
    for line in file_lines(settings, server):
        lines += labelled("files", line)
    return lines


def warnings(server: Server, report: ServerReport) -> list[str]:
    """Returns what is wrong with the configuration of a server, for lines after everything else."""
    return [line for text in misfits(server, report) for line in warned(f"{server.id}: {text}")]


def warned(text: str) -> list[str]:
    """Returns a warning, wrapped."""
    return textwrap.wrap(
        plain(f"WARNING {text}"),
        WIDTH,
        subsequent_indent=" " * _LABEL,
        break_on_hyphens=False,
        break_long_words=False,
    )
