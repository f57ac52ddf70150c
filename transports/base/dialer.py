"""Connections to servers: TCP and TLS set-up, and messages that explain failures."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
from typing import Final

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ...core.base.limits import Limits
from ...core.wire.tls_faults import Trust, explain_certificate, explain_handshake
from .endpoint import Address, Endpoint
from .keepalive import keep_alive
from .stream_socket import socket_of

LOST: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.BusyResourceError,  # the TLS layer wants to write from both tasks at once
    OSError,  # TimeoutError and ssl.SSLError among them
)
"""Exceptions that reading and writing raise when a connection can no longer be used."""


class Unreachable(Exception):
    """Raised when no connection could be made. The message says why, and what to check.

    Args:
        is_timeout: the time limit passed without an answer.
    """

    def __init__(self, detail: str, *, is_timeout: bool = False) -> None:
        super().__init__(detail)
        self.is_timeout = is_timeout


class Dialer:
    """Connects to one origin, with the TLS settings of an `Endpoint` there."""

    def __init__(self, endpoint: Endpoint, address: Address, limits: Limits) -> None:
        self.address = address
        self._ca_file = endpoint.ca_file
        self._names = endpoint.names
        self._is_verified = endpoint.verify_tls
        self.timeout_s = limits.connect_timeout_s
        self._tls: ssl.SSLContext | None = None
        self.is_direct = address.scheme in ("http", "ws") and is_literal(address.host)
        """True if the host is an IP address and there is no TLS: an asyncio protocol may then connect without a
        stream."""

    async def connect(self) -> ByteStream:
        """Connects, with TLS if the scheme is https or wss.

        Raises:
            Unreachable: no connection within `Limits.connect_timeout_s`, or it failed before that.
        """
        try:
            tls = self._context()
        except OSError as error:
            right = "expected a PEM file of certificates"
            raise Unreachable(f"cannot use {self._names.ca_file} {self._ca_file}: {error}, {right}") from error
        try:
            with anyio.fail_after(self.timeout_s):
                return await self._open(tls)
        except LOST as error:
            raise Unreachable(self.describe(error), is_timeout=isinstance(error, TimeoutError)) from error

    async def _open(self, tls: ssl.SSLContext | None) -> ByteStream:
        stream = await anyio.connect_tcp(self.address.host, self.address.port)
        keep_alive(socket_of(stream))
        return stream if tls is None else await self._secure(stream, tls)

    async def _secure(self, stream: ByteStream, tls: ssl.SSLContext) -> ByteStream:
        try:
            # Not standard_compatible: HTTP's framing tells a cut from an end, and few servers send TLS close_notify.
            return await TLSStream.wrap(stream, hostname=self.address.host, ssl_context=tls, standard_compatible=False)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise

    def _context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, made on first use; None for http and ws.

        Raises:
            OSError: the file of certificate authorities cannot be read or used.
        """
        if self._tls is None and self.address.scheme in ("https", "wss"):
            context = ssl.create_default_context(cafile=self._ca_file)
            context.set_alpn_protocols(["http/1.1"])
            if not self._is_verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def describe(self, error: Exception) -> str:
        """Explains in one line why no connection could be made, and what to check."""
        cause: BaseException | None = error
        while isinstance(cause, Exception):
            error = cause
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__
        host, port, scheme = self.address.host, self.address.port, self.address.scheme
        where = f"{host}:{port}"
        match error:
            case ssl.SSLCertVerificationError():
                trust = Trust(self._ca_file, _missing_authorities(), self._names)
                return explain_certificate(host, port, error.verify_code, error.verify_message, trust)
            case ssl.SSLError():
                return explain_handshake(host, port, scheme, error.reason or str(error))
            case socket.gaierror():
                return f"cannot resolve {self.address.host}: {error.strerror}; is the host name right?"
            case TimeoutError():
                return f"no connection to {where} within {self.timeout_s:g} s"
            case ConnectionRefusedError():
                return f"connection refused by {where}; is the server running?"
            case OSError() if error.errno in (errno.EMFILE, errno.ENFILE):
                return f"no connection to {where}: {error.strerror}; raise the limit of open files (ulimit -n)"
            case OSError():
                return f"no connection to {where}: {error.strerror or error}"
        return explain_handshake(host, port, scheme, "")  # without TLS nothing is received during set-up


def _missing_authorities() -> str:
    """Returns the file that SSL_CERT_FILE names, if it is not there: OpenSSL passes over it in silence."""
    path = os.environ.get("SSL_CERT_FILE", "")
    return path if path and not os.path.isfile(path) else ""


def is_literal(host: str) -> bool:
    """True if a host is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
