"""How many files may be open, and what that leaves for connections: a socket is an open file."""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import Final

import msgspec

from ...core.base.limits import Limits

OPEN_FILES_MAX: Final = 65_536
"""What is asked for, where the system allows it. More is of no use here, and what our children inherit: some programs
go through all numbers up to this one when they start."""
CALLS_SHARE: Final = 4
"""A part of so many is kept for what comes and goes: calls on either side, processes, files."""
CALLS_MAX: Final = 4096
"""More of that than limits elsewhere leave use for is not kept."""

_log: Final = logging.getLogger("isthmus.server")


def allow_open_files() -> int | None:
    """Have as many open files as the system lets us: the usual first limit of 1024 stems from a time of fewer. Returns
    how many that are; None: there is no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


def within_open_files(limits: Limits, open_files: int | None) -> Limits:
    """`limits`, with no more streams than there are files for: each is one to its client and one to its server, and
    what is needed for calls is left."""
    if open_files is None:
        return limits
    kept = min(open_files // CALLS_SHARE, CALLS_MAX)
    streams = (open_files - kept) // 2
    fitted = msgspec.structs.replace(
        limits,
        connections_max=min(limits.connections_max, streams + kept // 2),
        upstream_streams_max=min(limits.upstream_streams_max, streams),
    )
    if fitted != limits:
        _log.info(
            "%d files may be open: so at most %d client connections and %d streams of servers are; all limits hold "
            "where the hard limit of open files (ulimit -Hn, LimitNOFILE=) is %d",
            open_files,
            fitted.connections_max,
            fitted.upstream_streams_max,
            open_files_for(limits),
        )
    return fitted


def open_files_for(limits: Limits) -> int:
    """How many files must be allowed to be open for `limits` to hold as they are."""
    streams = max(limits.upstream_streams_max, limits.connections_max - CALLS_MAX // 2)
    return 2 * streams + CALLS_MAX
