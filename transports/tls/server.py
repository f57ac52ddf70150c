"""TLS of a listener: sessions for its connections, and the log of failed handshakes."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Final

from .session import TlsSession

LOG_EVERY_S: Final = 10.0
"""Seconds between two lines about failed handshakes: a scanner makes thousands."""

_log: Final = logging.getLogger("isthmus.tls")


class ServerTls:
    """The TLS of a listener.

    Args:
        context: returns the context of the next connection. It is another one once the certificate was renewed.
        handshake_timeout_s: the longest that a handshake may take.

    Attributes:
        handshake_timeout_s: as given.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext], *, handshake_timeout_s: float) -> None:
        self.handshake_timeout_s = handshake_timeout_s
        self._context = context
        self._log_again_at = 0.0
        self._unlogged = 0

    def session(self) -> TlsSession:
        """Returns the session of a new connection."""
        return TlsSession(self._context())

    def note_failure(self, peer_host: str, reason: str) -> None:
        """Logs a failed handshake, at most one in `LOG_EVERY_S`; the others are counted."""
        now = time.monotonic()
        if now < self._log_again_at:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more failed before" if self._unlogged else ""
        _log.info("no TLS with %s: %s%s", peer_host or "a client that is gone", reason, more)
        self._log_again_at, self._unlogged = now + LOG_EVERY_S, 0
