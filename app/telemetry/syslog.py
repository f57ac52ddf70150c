"""A syslog server that gets the records of the audit log (RFC 5424), over UDP, TCP or a Unix domain socket.

The handler of the standard library hides failures. It knows neither the header of RFC 5424 nor the framing of RFC
6587.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Final

from ...core.base.timestamps import format_time
from ..config.audit_checks import SyslogAddress

PRIORITY: Final = 13 * 8 + 6
"""Facility 13, log audit, and severity 6, informational (RFC 5424, 6.2.1)."""
TIMEOUT_S: Final = 5.0
"""Seconds that a connection or a write may take. A server on the same network takes milliseconds. At it: the records
are lost, and the next ones are tried on a new connection."""
HOST_MAX_CHARS: Final = 255
"""Characters of the host name in a header (RFC 5424, 6). At it: the rest is left out."""


class Syslog:
    """A syslog server. A connection is made when it is needed."""

    def __init__(self, address: SyslogAddress) -> None:
        self.name = address.path or f"{address.scheme}://{address.host}:{address.port}"
        self._address = address
        self._socket: socket.socket | None = None
        host = "".join(each for each in socket.gethostname() if "!" <= each <= "~")[:HOST_MAX_CHARS] or "-"
        self._about = f"{host} isthmus {os.getpid()} audit -".encode()

    def open(self) -> None:
        """Does nothing: a server that is away is no reason not to start."""

    def close(self) -> None:
        """Closes the connection. Safe to call twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def write(self, lines: list[bytes]) -> None:
        """Sends lines, as one message each, and removes those that are sent from the list. A connection that the server
        has closed meanwhile is made anew, once.

        Raises:
            OSError: the first line of the list could not be sent.
        """
        may_retry = self._socket is not None
        while lines:
            message = b"<%d>1 %b %b %b" % (PRIORITY, format_time(time.time()).encode(), self._about, lines[0].rstrip())
            if self._address.scheme == "tcp":
                message = b"%d %b" % (len(message), message)  # RFC 6587, 3.4.1
            try:
                self._send(message)
            except OSError:
                self.close()
                if not may_retry:
                    raise
                may_retry = False
            else:
                del lines[0]

    def _send(self, message: bytes) -> None:
        if self._socket is None:
            self._socket = self._connected()
        self._socket.sendall(message)

    def _connected(self) -> socket.socket:
        scheme, host, port, path = self._address
        if scheme == "tcp":
            return socket.create_connection((host, port), TIMEOUT_S)
        if scheme == "unix":
            return _datagrams(socket.AF_UNIX, path)
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        return _datagrams(family, address)


def _datagrams(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.settimeout(TIMEOUT_S)
        made.connect(address)  # type: ignore[arg-type]
    except OSError:
        made.close()
        raise
    return made
