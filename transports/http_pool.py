"""The connections to one origin, and who waits for one."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING

from ..core.effects import Cause, End
from .http_client_connection import Connection
from .http_endpoint import Address, Endpoint

if TYPE_CHECKING:
    from .http_client import HttpClient
    from .http_client_exchange import Exchange


class Pool:
    """The connections to one origin. While exchanges wait, none is idle and there are as many as may be."""

    def __init__(self, client: HttpClient, endpoint: Endpoint, address: Address) -> None:
        self.client = client
        self.address = address
        self.waiting: deque[Exchange] = deque()
        self.idle: list[Connection] = []  # the last used is the first used again
        self._connections = 0
        self.ca_file = endpoint.ca_file
        self._is_verified = endpoint.verify_tls
        self._tls: ssl.SSLContext | None = None

    def dispatch(self, exchange: Exchange) -> None:
        """Find `exchange` a connection, now or later."""
        limit = self.client.limits.upstream_connections_max
        if self.idle:
            connection = self.idle.pop()
            del self.client.unheld[connection]
            connection.take(exchange)
        elif self._connections < limit:
            self._connections += 1
            connection = Connection(self)
            connection.take(exchange)
            self.client.start(connection)
        elif len(self.waiting) < limit:
            self.waiting.append(exchange)
        else:
            detail = f"overloaded: {limit} connections to this server are busy and as many requests wait"
            self.client.end_soon(exchange, Cause(End.UNREACHABLE, detail, unsent=True))

    def take_back(self, connection: Connection) -> bool:
        """A connection can be used again. False if there is no use for it."""
        if self.waiting:
            self.client.unheld.pop(connection, None)
            connection.take(self.waiting.popleft())
            return True
        if len(self.idle) >= self.client.limits.pool_idle_max:
            return False
        self.idle.append(connection)
        self.client.note_unheld(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection cannot be used again; whether it is closed yet does not matter."""
        if connection in self.idle:
            self.idle.remove(connection)
        self.client.unheld.pop(connection, None)

    def release(self) -> None:
        """A connection is closed: another may be opened."""
        self._connections -= 1

    def dispatch_waiting(self) -> None:
        if self.waiting and self._connections < self.client.limits.upstream_connections_max:
            self.dispatch(self.waiting.popleft())

    def tls(self) -> ssl.SSLContext | None:
        """How to secure a connection to this origin; None for http.

        Raises:
            OSError: the file of certificate authorities cannot be read or used.
        """
        if self._tls is None and self.address.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            context.set_alpn_protocols(["http/1.1"])
            if not self._is_verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def describe_failure(self, error: Exception) -> str:
        """Why no connection came about, and what to look at."""
        cause: BaseException | None = error
        while isinstance(cause, Exception):
            error = cause
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__
        where = f"{self.address.host}:{self.address.port}"
        match error:
            case ssl.SSLCertVerificationError():
                reason = f"{where} did not prove its identity: {error.verify_message}"
                return f"{reason}; check the host name, or name the authority in ca_file"
            case ssl.SSLError():
                return f"no TLS with {where}: {error.reason or error}; is it an http:// server?"
            case socket.gaierror():
                return f"cannot resolve {self.address.host}: {error.strerror}; is the host name right?"
            case TimeoutError():
                return f"no connection to {where} within {self.client.limits.connect_timeout_s:g} s"
            case ConnectionRefusedError():
                return f"connection refused by {where}; is the server running?"
            case OSError():
                return f"no connection to {where}: {error.strerror or error}"
        return f"{where} closed the connection during set-up; does it speak {self.address.scheme}?"
