"""The table of shared stores on the screen of `check`: a row for each, wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..base.output import plain
from ..stores.report import StoreReport
from .server_details import warned
from .server_table import WIDTH

_HEAD = f"{'STORE':9}{'STATE':8}"


def lines_of(reports: Sequence[StoreReport]) -> list[str]:
    """Returns the table; nothing if no store is shared."""
    if not reports:
        return []
    lines = [_HEAD.rstrip()]
    for report in reports:
        head = f"{report.name:9}{'ready' if report.is_usable else 'FAILED':8}"
        lines += textwrap.wrap(
            plain(report.text),
            WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
            break_long_words=False,
        )
    return lines


def warnings(reports: Sequence[StoreReport]) -> list[str]:
    """Returns what is not as it should be, for lines after everything else."""
    return [line for report in reports for text in report.warnings for line in warned(text)]
