"""Probes of idle TCP connections, and a time limit of unacknowledged bytes, so that a dead path is noticed.

A NAT table or firewall forgets an idle connection after 60 to 350 s and says nothing. The probes keep it in the table,
and show that it is gone where they do not help.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

IDLE_S: Final = 25
"""Seconds without traffic before the first probe: well under the 60 s after which the strictest tables forget."""
INTERVAL_S: Final = 10
"""Seconds between probes that were not answered."""
PROBES_MAX: Final = 4
"""Probes without an answer before the connection is given up: 65 s after the last byte."""
USER_TIMEOUT_MS: Final = 75_000
"""The longest that sent bytes may stay unacknowledged; the kernel alone would try for about 15 minutes. Longer than
`Limits.write_timeout_s`, since a peer that reads nothing runs into this limit as well."""

_OPTIONS: Final = (
    ("TCP_KEEPIDLE", IDLE_S),
    ("TCP_KEEPALIVE", IDLE_S),  # the name of TCP_KEEPIDLE on macOS
    ("TCP_KEEPINTVL", INTERVAL_S),
    ("TCP_KEEPCNT", PROBES_MAX),
    ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
)


def keep_alive(tcp: socket.socket | None) -> None:
    """Turns the probes on, as far as the system has them. Does nothing for a socket that is not TCP, or is gone.

    Sockets that a listening one accepts inherit its options, so a listener needs this once.
    """
    if tcp is None or tcp.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):  # a socket that is closed already
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            if hasattr(socket, name):
                tcp.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
