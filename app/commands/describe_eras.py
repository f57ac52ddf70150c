"""Describes for people what clients of another era than their server's lose in translation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import get_args

from ...core.base.revisions import LEGACY, MODERN, Era, is_older
from ..base.output import plain
from ..runtime.probe import ServerReport
from .losses import Fate, Loss, losses_for_older, losses_of
from .server_table import WIDTH

_OLDEST, *_, _LATEST = LEGACY


def describe(report: ServerReport) -> list[str]:
    """Returns lines with the capabilities of a server, and what is changed, refused or dropped for which clients."""
    if report.problem or report.is_transparent or not report.eras:
        return []
    declared, eras = report.declared, [Era(era) for era in report.eras]
    lines = list(_wrapped("    can     ", [plain(one) for one in _grouped(declared)] or ["nothing that it declares"]))
    if eras == [Era.HANDSHAKE]:
        lines.append(f"    clients without sessions ({', '.join(MODERN)}) are translated for:")
        lines += _by_fate(losses_of(Era.HANDSHAKE, Era.STATELESS, declared))
    elif eras == [Era.STATELESS] or report.era == Era.STATELESS.value:
        lines.append(f"    clients with sessions ({_OLDEST} to {_LATEST}) are translated for:")
        between = losses_of(Era.STATELESS, Era.HANDSHAKE, declared)
        lines += _by_fate(between + losses_for_older(Era.STATELESS, declared))
    if (
        eras[0] is Era.HANDSHAKE
        and report.era != Era.STATELESS.value
        and is_older(_OLDEST, report.eras[Era.HANDSHAKE.value])
    ):
        lines.append(f"    clients with sessions older than {plain(report.eras[Era.HANDSHAKE.value])}:")
        lines += _by_fate(losses_for_older(Era.HANDSHAKE, declared))
    return lines


def _grouped(declared: Sequence[str]) -> Iterator[str]:
    """Yields each capability with its members in brackets after it."""
    for name, members in groupby(declared, key=lambda one: one.partition(".")[0]):
        inner = [member.partition(".")[2] for member in members if "." in member]
        yield f"{name} ({', '.join(inner)})" if inner else name


def _by_fate(losses: Sequence[Loss]) -> Iterator[str]:
    for fate in get_args(Fate):
        features = [loss.feature for loss in losses if loss.fate == fate]
        if features:
            yield from _wrapped(f"      {fate}  ", features)


def _wrapped(head: str, parts: Sequence[str]) -> list[str]:
    return textwrap.wrap(
        ", ".join(parts), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )
