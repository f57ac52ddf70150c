"""The limit of open files, and the limits of connections that fit within it: a socket is an open file."""

from __future__ import annotations

import contextlib
import logging
import resource
from typing import Final

import msgspec

from ...core.base.limits import Limits

OPEN_FILES_MAX: Final = 65_536
"""The limit requested, if the system allows it. More is of no use, and child processes inherit the limit: some
programs loop over all descriptors up to it when they start."""
FEW_FILES: Final = 4096
"""The number of open files below which a warning is logged at start: some hundred clients need no more."""
CALLS_SHARE: Final = 4
"""One in so many open files is reserved for short uses: calls on either side, processes, files."""
CALLS_MAX: Final = 4096
"""Upper bound of that reserve: other limits leave no use for more."""

_log: Final = logging.getLogger("isthmus.server")


def allow_open_files() -> int | None:
    """Raises the soft limit of open files as far as the system allows. Its usual 1024 is too low for a server.

    Returns:
        The limit that holds now; None if there is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft


def within_open_files(limits: Limits, open_files: int | None) -> Limits:
    """Returns `limits` with at most as many streams as open files allow.

    Each stream takes two files, one to its client and one to its server. The reserve for calls is kept.
    """
    if open_files is None:
        return limits
    reserve = min(open_files // CALLS_SHARE, CALLS_MAX)
    streams = (open_files - reserve) // 2
    fitted = msgspec.structs.replace(
        limits,
        connections_max=min(limits.connections_max, streams + reserve // 2),
        upstream_streams_max=min(limits.upstream_streams_max, streams),
    )
    if fitted != limits:
        is_small = open_files < FEW_FILES
        _log.log(
            logging.WARNING if is_small else logging.DEBUG,
            "%d files may be open, so at most %d client connections and %d streams of servers are: "
            "raise the hard limit of open files (ulimit -Hn, LimitNOFILE=) to %d for as many as the limits allow",
            open_files,
            fitted.connections_max,
            fitted.upstream_streams_max,
            open_files_for(limits),
        )
    return fitted


def open_files_for(limits: Limits) -> int:
    """Returns the limit of open files that `limits` need to hold as they are."""
    streams = max(limits.upstream_streams_max, limits.connections_max - CALLS_MAX // 2)
    return 2 * streams + CALLS_MAX
