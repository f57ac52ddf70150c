"""Connections to servers: TCP and TLS set-up, and messages that explain failures."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ...core.base.limits import Limits
from ...core.wire.headers import Headers
from ...core.wire.http.egress import REQUIRES_AUTHENTICATION, Proxy
from ...core.wire.tls_faults import ALPN_REFUSED, Trust, explain_certificate, explain_handshake, reason_of
from .driver import uses_protocols
from .endpoint import Address, Endpoint
from .keepalive import keep_alive
from .stream_socket import socket_of
from .transport_stream import TransportStream
from .tunnel import TunnelRefused, open_tunnel

HTTP1: Final = "http/1.1"
HTTP2: Final = "h2"
"""The names of the versions of HTTP in TLS (ALPN). Source: RFC 7301, 6, and RFC 9113, 3.1."""

LOST: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.BusyResourceError,  # the TLS layer wants to write from both tasks at once
    OSError,  # TimeoutError and ssl.SSLError among them
)
"""Exceptions that reading and writing raise when a connection can no longer be used."""
_NOBODY_THERE: Final = (ConnectionRefusedError, FileNotFoundError)


class Unreachable(Exception):
    """Raised when no connection could be made. The message says why, and what to check.

    Args:
        is_timeout: the time limit passed without an answer.
        is_refused: nobody listens there.
        is_alpn_refused: the server does not speak the version of HTTP that it was offered.
    """

    def __init__(
        self, detail: str, *, is_timeout: bool = False, is_refused: bool = False, is_alpn_refused: bool = False
    ) -> None:
        super().__init__(detail)
        self.is_timeout = is_timeout
        self.is_refused = is_refused
        self.is_alpn_refused = is_alpn_refused


class Dialer:
    """Connects to one origin, with the TLS settings and the proxy of an `Endpoint` there.

    Attributes:
        peer: host and port to connect to: the origin's, or the proxy's.
        target_prefix: stands before each request target: a proxy without a tunnel is told the whole URL.
        proxy_headers: headers for such a proxy in each request.
        is_direct: the peer is an IP address and there is neither TLS nor a tunnel: an asyncio protocol may then connect
            without a stream.

    Args:
        at: the IP address to connect to, instead of looking the origin's host up. Not with a proxy.
        unix_path: of the Unix socket to connect to instead. Not with a proxy.
    """

    def __init__(
        self, endpoint: Endpoint, address: Address, limits: Limits, *, at: str | None = None, unix_path: str = ""
    ) -> None:
        assert (at is None and not unix_path) or endpoint.proxy is None
        self.address = address
        self._ca_file = endpoint.ca_file
        self._names = endpoint.names
        self._is_verified = endpoint.verify_tls
        self.timeout_s = limits.connect_timeout_s
        self._tls: dict[str, ssl.SSLContext] = {}  # by the version of HTTP that it offers
        self._limits = limits
        self._proxy = proxy = endpoint.proxy
        # Most proxies drop the Upgrade header, and let through only tunnels for it.
        self._tunnels = proxy is not None and address.scheme != "http"
        self.peer = (at or address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        self.target_prefix, self.proxy_headers = b"", []
        if proxy is not None and not self._tunnels:
            self.target_prefix, self.proxy_headers = b"http://" + address.authority, proxy.headers
        is_plain = address.scheme in ("http", "ws") and (proxy is None or proxy.scheme == "http")
        self.is_direct = is_plain and not self._tunnels and is_literal(self.peer[0]) and not unix_path
        self._unix_path = unix_path

    async def connect(self, alpn: str = HTTP1) -> ByteStream:
        """Connects, through the proxy if there is one, and with TLS if the scheme is https or wss.

        TLS offers one version of HTTP. A server that is offered both chooses by an order of its own, and one that
        speaks HTTP/1.1 is to be spoken to in that.

        Args:
            alpn: the name of that version.

        Raises:
            Unreachable: no connection within `Limits.connect_timeout_s`, or it failed before that.
        """
        try:
            tls = self._context(alpn)
        except OSError as error:
            right = "expected a PEM file of certificates"
            raise Unreachable(f"cannot use {self._names.ca_file} {self._ca_file}: {error}, {right}") from error
        try:
            with anyio.fail_after(self.timeout_s):
                return await self._open(tls)
        except LOST as error:
            is_alpn_refused = isinstance(error, ssl.SSLError) and reason_of(error.reason, str(error)) in ALPN_REFUSED
            detail = self.describe(error, alpn)
            raise Unreachable(
                detail,
                is_timeout=isinstance(error, TimeoutError),
                is_refused=isinstance(_root_of(error), _NOBODY_THERE),
                is_alpn_refused=is_alpn_refused,
            ) from error

    async def _open(self, tls: ssl.SSLContext | None) -> ByteStream:
        stream = await self._reach(self._proxy)
        return stream if tls is None else await _secure(stream, tls, self.address.host)

    async def _reach(self, proxy: Proxy | None) -> ByteStream:
        """Returns a stream to the server, or to a proxy that is told the whole URL."""
        try:
            if self._unix_path:
                return await _connect_unix(self._unix_path)
            stream: ByteStream = await anyio.connect_tcp(*self.peer)
            keep_alive(socket_of(stream))
            if proxy is None:
                return stream
            if proxy.scheme == "https":
                context = ssl.create_default_context()
                context.set_alpn_protocols([HTTP1])
                stream = await _secure(stream, context, proxy.host)
            if self._tunnels:
                try:
                    await open_tunnel(stream, proxy, self.address, self._limits)
                except BaseException:
                    await anyio.aclose_forcefully(stream)
                    raise
            return stream
        except TunnelRefused as error:
            raise Unreachable(str(error)) from None
        except LOST as error:
            if proxy is None:
                raise
            raise Unreachable(self._describe_proxy(proxy, error), is_timeout=isinstance(error, TimeoutError)) from error

    def _context(self, alpn: str) -> ssl.SSLContext | None:
        """Returns the TLS context, made on first use; None for http and ws.

        Raises:
            OSError: the file of certificate authorities cannot be read or used.
        """
        if self.address.scheme not in ("https", "wss"):
            return None
        if alpn not in self._tls:
            context = ssl.create_default_context(cafile=self._ca_file)
            context.set_alpn_protocols([alpn])
            if not self._is_verified:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls[alpn] = context
        return self._tls[alpn]

    def explain_refusal(self, status: int, headers: Headers) -> str:
        """Explains a response to a request that was sent to a proxy with the whole URL. Returns "" if it may be the
        server's."""
        if self._proxy is None or self._tunnels or status != REQUIRES_AUTHENTICATION:
            return ""
        return self._proxy.explain_refusal(status, headers, self.address.host)

    def describe(self, error: Exception, alpn: str = HTTP1) -> str:
        """Explains in one line why no connection could be made, and what to check."""
        if self._proxy is None:
            return self._describe(error, self.address.host, self.address.port, self.address.scheme, "server", alpn)
        if self.is_direct:
            return self._describe_proxy(self._proxy, error)
        if isinstance(error, TimeoutError):
            start = f"no connection to {self.address.host} through the proxy {self._proxy.where} within"
            mend = self._proxy.mend(self.address.host)
            return f"{start} {self.timeout_s:g} s; {self._proxy.source} names it: {mend}"
        return self._describe(error, self.address.host, self.address.port, self.address.scheme, "server", alpn)

    def _describe_proxy(self, proxy: Proxy, error: Exception) -> str:
        reason = self._describe(error, proxy.host, proxy.port, "https", "proxy")
        return f"the proxy that {proxy.source} names: {reason}; {proxy.mend(self.address.host)}"

    def _describe(self, error: Exception, host: str, port: int, scheme: str, role: str, alpn: str = HTTP1) -> str:
        error = _root_of(error)
        where = self._unix_path or f"{host}:{port}"
        match error:
            case ssl.SSLCertVerificationError():
                ca_file, names = self._ca_file, self._names
                if role == "proxy":
                    ca_file, names = None, msgspec.structs.replace(names, ca_file="the system's store", unchecked="")
                trust = Trust(ca_file, _missing_authorities(), names)
                return explain_certificate(host, port, error.verify_code, error.verify_message, trust)
            case ssl.SSLError():
                offers_http2 = alpn != HTTP1
                reason = reason_of(error.reason, str(error))
                return explain_handshake(host, port, scheme, reason, offers_http2=offers_http2)
            case socket.gaierror():
                return f"cannot resolve {host}: {error.strerror}; is the host name right?"
            case TimeoutError():
                return f"no connection to {where} within {self.timeout_s:g} s"
            case ConnectionRefusedError():
                return f"connection refused by {where}; is the {role} running?"
            case OSError() if error.errno in (errno.EMFILE, errno.ENFILE):
                return f"no connection to {where}: {error.strerror}; raise the limit of open files (ulimit -n)"
            case OSError():
                return f"no connection to {where}: {error.strerror or error}"
        if scheme in ("http", "ws"):
            return f"{where} closed the connection during set-up; does it speak {scheme}?"
        return explain_handshake(host, port, scheme, "")


async def _connect_unix(path: str) -> ByteStream:
    """Connects to a Unix socket. On asyncio the stream has a transport, which may be taken over; that of anyio has
    none."""
    if not uses_protocols():
        return await anyio.connect_unix(path)
    _, stream = await asyncio.get_running_loop().create_unix_connection(TransportStream, path)
    return stream


def _root_of(error: Exception) -> Exception:
    """Returns the first of the errors that have led to this one."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        error = cause
        cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error.__cause__
    return error


async def _secure(stream: ByteStream, tls: ssl.SSLContext, host: str) -> ByteStream:
    try:
        # Not standard_compatible: HTTP's framing tells a cut from an end, and few servers send TLS close_notify.
        return await TLSStream.wrap(stream, hostname=host, ssl_context=tls, standard_compatible=False)
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


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
