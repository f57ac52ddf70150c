"""One small HTTPS request to a URL that another party may have written: metadata, keys, tokens.

Such a URL must not lead into this machine or its network. So the host is looked up once, every address found is judged,
and the connection goes to an address that was judged: a name that resolves to something else a moment later gains
nothing. A redirect is an answer like any other. Nothing of a query, a header or a body is in an error.

Through a proxy, the proxy looks names up: only a host that is written as an address is judged here.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from typing import Final

import anyio
import h11
import msgspec
from anyio.abc import ByteStream

from ..core.base.limits import Limits
from ..core.base.setting_names import KEYS, SettingNames
from ..core.wire.headers import Headers
from ..core.wire.http.egress import Proxy, proxy_for
from ..core.wire.http.public_addresses import explain_address, is_loopback_name
from ..core.wire.http.url import Address, parse_url
from ..core.wire.http1.events import END, NEED_DATA, Data, InformationalHead, ResponseHead
from .base.dialer import LOST, Dialer, Unreachable
from .base.endpoint import Endpoint
from .http1.client import ClientCodec

TIMEOUT_S: Final = 10.0
"""Seconds for everything: looking the host up, connecting, and the response."""
ADDRESS_TIMEOUT_S: Final = 3.0
"""Seconds for a connection to one of several addresses, so that one without a way there does not use up all."""
ADDRESSES_MAX: Final = 3
"""The most addresses of a host that are tried."""
BODY_MAX_BYTES: Final = 64 * 1024
"""The largest body of a response. Metadata and key sets of large providers have some 10 KB."""
RECEIVED_MAX_BYTES: Final = 256 * 1024
"""The most bytes received for one response: with its heads, and with the framing of a chunked body."""
READ_SIZE_BYTES: Final = 16 * 1024

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class Fetched(msgspec.Struct, frozen=True):
    """A response. The names of its headers are in lower case."""

    status: int
    headers: Headers
    body: bytes

    def field(self, name: bytes) -> str:
        """Returns the values of a header, joined by commas (RFC 9110, 5.2); "" if there is none."""
        return b", ".join(value for key, value in self.headers if key == name).decode("latin-1")


class FetchFailed(Exception):
    """Raised when there is no response. The message names scheme, host and reason.

    Args:
        is_forbidden: the URL must not be requested, now or later.
        is_unsent: no byte of the request was sent.
    """

    def __init__(self, detail: str, *, is_forbidden: bool = False, is_unsent: bool = True) -> None:
        super().__init__(detail)
        self.is_forbidden = is_forbidden
        self.is_unsent = is_unsent


@dataclass(frozen=True)
class FetchSettings:
    """The settings of requests for one purpose.

    Args:
        origins: URLs whose origins may be requested in any case, at any address and without TLS: the configuration
            names them.
        allows_loopback: whether `localhost` and loopback addresses may be requested, without TLS as well.
        ca_file: see `Endpoint`.
        proxy: the setting of a proxy, as `proxy_for` takes it; None: the environment decides.
        names: the names of settings in messages.
        timeout_s: seconds for one request in all.
    """

    origins: frozenset[str] = frozenset()
    allows_loopback: bool = False
    ca_file: str | None = None
    proxy: str | None = None
    names: SettingNames = KEYS
    timeout_s: float = TIMEOUT_S


async def fetch(
    method: str, url: str, headers: Headers, body: bytes, *, settings: FetchSettings = FetchSettings()
) -> Fetched:
    """Sends a request and returns its response, whatever its status.

    Args:
        headers: without those of the connection and of framing (`FRAMING_HEADERS`); names in lower case.
        body: sent with a POST; b"" otherwise.

    Raises:
        FetchFailed: the URL must not be requested, or there is no response within `BODY_MAX_BYTES` and
            `settings.timeout_s`.
    """
    try:
        address = parse_url(url)
    except ValueError as error:
        raise FetchFailed(f"cannot request a URL: {error}", is_forbidden=True) from None
    where = f"{address.scheme}://{address.authority.decode()}"
    request = _Request(method, headers, body, settings, address)
    try:
        with anyio.fail_after(settings.timeout_s):
            return await request.run()
    except FetchFailed as error:
        raise FetchFailed(f"{where}: {error}", is_forbidden=error.is_forbidden, is_unsent=request.is_unsent) from None
    except TimeoutError:
        detail = f"{where}: no whole response within {settings.timeout_s:g} s"
        raise FetchFailed(detail, is_unsent=request.is_unsent) from None


class _Request:
    """One request, on a connection of its own."""

    def __init__(self, method: str, headers: Headers, body: bytes, settings: FetchSettings, address: Address) -> None:
        self._method = method
        self._headers = headers
        self._body = body
        self._settings = settings
        self._address = address
        self.is_unsent = True
        self._is_listed = address.origin in {parse_url(one).origin for one in settings.origins}
        self._is_loopback = is_loopback_name(address.host)

    async def run(self) -> Fetched:
        self._judge_scheme()
        dialer, stream = await self._connect()
        try:
            return await self._exchange(dialer, stream)
        except LOST:
            raise FetchFailed("the connection broke off before the response was complete") from None
        finally:
            await anyio.aclose_forcefully(stream)

    def _judge_scheme(self) -> None:
        scheme = self._address.scheme
        if scheme not in ("http", "https"):
            raise FetchFailed(f"got a URL of scheme {scheme}, expected https", is_forbidden=True)
        if self._is_listed:
            return
        if self._is_loopback and not self._settings.allows_loopback:
            raise FetchFailed("this is the machine itself, which this URL must not lead to", is_forbidden=True)
        if scheme == "http" and not self._is_loopback:
            raise FetchFailed("got a URL without TLS, expected https", is_forbidden=True)

    async def _connect(self) -> tuple[Dialer, ByteStream]:
        settings, address = self._settings, self._address
        try:
            proxy = None if self._is_loopback else proxy_for(address, settings.proxy, settings.names.proxy, os.environ)
        except ValueError as error:
            raise FetchFailed(str(error)) from None
        if proxy is not None:
            literal = _literal_of(address.host)
            if literal is not None:
                self._judge(literal)
            return await self._dial(proxy, None, settings.timeout_s)
        found = await self._resolve()
        timeout_s = ADDRESS_TIMEOUT_S if len(found) > 1 else settings.timeout_s
        failure: FetchFailed | None = None
        for one in found[:ADDRESSES_MAX]:
            try:
                return await self._dial(None, str(one), timeout_s)
            except FetchFailed as error:
                failure = failure or error
        raise failure or FetchFailed("its name has no address")

    async def _dial(self, proxy: Proxy | None, at: str | None, timeout_s: float) -> tuple[Dialer, ByteStream]:
        settings = self._settings
        scheme, authority = self._address.scheme, self._address.authority.decode()
        names = msgspec.structs.replace(settings.names, unchecked="")  # what is fetched is trusted in any case
        endpoint = Endpoint(f"{scheme}://{authority}", ca_file=settings.ca_file, proxy=proxy, names=names)
        dialer = Dialer(endpoint, self._address, Limits(connect_timeout_s=timeout_s), at=at)
        try:
            return dialer, await dialer.connect()
        except Unreachable as error:
            raise FetchFailed(str(error)) from None

    async def _resolve(self) -> list[_IP]:
        """Looks the host up, once, and judges each address.

        Raises:
            FetchFailed: it has none, or one that must not be connected to.
        """
        host, port = self._address.host, self._address.port
        try:
            rows = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # A scope, as in fe80::1%eth0, is for addresses that are refused.
            found = list(dict.fromkeys(ipaddress.ip_address(str(row[4][0]).partition("%")[0]) for row in rows))
        except (OSError, UnicodeError):
            raise FetchFailed("cannot resolve the name; is the host name right?") from None
        for one in found:
            self._judge(one)
        return found

    def _judge(self, ip: _IP) -> None:
        if self._is_listed or (self._is_loopback and ip.is_loopback):
            return
        kind = explain_address(ip)
        if self._is_loopback and not kind:
            kind = "not a loopback address"
        if kind:
            reason = f"the address {ip} is {kind}, which this URL must not lead to"
            raise FetchFailed(reason, is_forbidden=True)

    async def _exchange(self, dialer: Dialer, stream: ByteStream) -> Fetched:
        codec = ClientCodec(head_size_max_bytes=Limits().head_size_max_bytes)
        headers = [(b"host", self._address.authority), (b"user-agent", b"isthmus"), (b"accept-encoding", b"identity")]
        headers += [*dialer.proxy_headers, *self._headers, (b"connection", b"close")]
        if self._method == "POST":
            headers.append((b"content-length", b"%d" % len(self._body)))
        try:
            encoded = codec.encode_request(self._method, dialer.target_prefix + self._address.target, headers)
        except h11.LocalProtocolError:
            raise FetchFailed("the request has a header that cannot be sent") from None
        self.is_unsent = False
        await stream.send(encoded + self._body)
        codec.note_sent()
        head, body = await self._read(codec, stream)
        refusal = dialer.explain_refusal(head.status, head.headers)
        if refusal:
            raise FetchFailed(refusal)
        return Fetched(head.status, head.headers, body)

    async def _read(self, codec: ClientCodec, stream: ByteStream) -> tuple[ResponseHead, bytes]:
        head: ResponseHead | None = None
        body = bytearray()
        received_size = 0
        while True:
            try:
                event = codec.next_event()
            except h11.RemoteProtocolError:
                raise FetchFailed("the response is not well-formed HTTP/1.1, or broke off") from None
            if event is NEED_DATA:
                data = await _receive(stream)
                received_size += len(data)
                if received_size > RECEIVED_MAX_BYTES:
                    raise FetchFailed(f"the response has more than {RECEIVED_MAX_BYTES} bytes with its framing")
                codec.receive_data(data)
            elif isinstance(event, ResponseHead):
                head = event
                if any(name == b"content-encoding" and value.lower() != b"identity" for name, value in head.headers):
                    raise FetchFailed("the body has a content coding, though only identity was asked for")
            elif isinstance(event, Data):
                body += event.data
                if len(body) > BODY_MAX_BYTES:
                    raise FetchFailed(f"the body of the response has more than {BODY_MAX_BYTES} bytes")
            elif event is END and head is not None:
                return head, bytes(body)
            elif not isinstance(event, InformationalHead):
                raise FetchFailed("the connection ended without a response")


async def _receive(stream: ByteStream) -> bytes:
    """Returns received bytes; b"" at the end of the stream."""
    try:
        return await stream.receive(READ_SIZE_BYTES)
    except anyio.EndOfStream:
        return b""


def _literal_of(host: str) -> _IP | None:
    """Returns the address that a host is written as, in the forms of old as well, such as 127.1; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
