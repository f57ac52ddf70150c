"""Proxies on the way to servers: which one a URL goes through, and what it is told.

The rules are those of httpx, the library of the official SDK, where they are useful here: small letters come before
capitals, `NO_PROXY` is looked at first, and servers on this machine are no exception unless `NO_PROXY` names them.
CIDR blocks in `NO_PROXY` are curl's. SOCKS is refused by name.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from ..headers import Headers
from .url import Address

NONE: Final = "none"
"""The value of the setting that means no proxy, whatever the environment says."""
REQUIRES_AUTHENTICATION: Final = 407
_PORTS: Final = {"http": 80, "https": 443}  # as httpx has them
_VARIABLES: Final = {"http": "HTTP_PROXY", "ws": "HTTP_PROXY", "https": "HTTPS_PROXY", "wss": "HTTPS_PROXY"}
_PARTS: Final = re.compile(
    r"(?:(?P<user>[^@]*)@)?(?:\[(?P<ip>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?/?"
)
_EXPECTED: Final = "expected http://HOST:PORT, http://USER:PASSWORD@HOST:PORT, https:// likewise, or none"
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxy(msgspec.Struct, frozen=True):
    """A proxy that requests go through.

    Attributes:
        scheme: http or https: how the proxy itself is spoken to.
        authorization: the value of Proxy-Authorization; empty: none.
        source: the variable or the setting that names the proxy.
    """

    scheme: str
    host: str
    port: int
    authorization: bytes
    source: str

    def __repr__(self) -> str:
        return f"Proxy({self.where!r}, source={self.source!r})"

    @property
    def where(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header with the credentials, for the proxy alone."""
        return [(b"proxy-authorization", self.authorization)] if self.authorization else []

    def mend(self, host: str) -> str:
        """Returns what a person can do if the proxy does not lead to `host`."""
        is_variable = self.source.upper().endswith("_PROXY")
        spare = f"name {host} in NO_PROXY" if is_variable else f"write {NONE} there"
        return f"correct {self.source}, or {spare} if no proxy is needed"

    def explain_refusal(self, status: int, headers: Headers, host: str) -> str:
        """Explains the refusal of a request to `host` by the proxy."""
        start = f"the proxy {self.where}, which {self.source} names,"
        if status not in (REQUIRES_AUTHENTICATION, 401):  # tinyproxy has 401 for a wrong password
            return f"{start} does not connect to {host}: HTTP status {status}; have it allowed there, {self.mend(host)}"
        wanted = {value.split(b" ")[0].lower() for name, value in headers if name == b"proxy-authenticate"}
        if wanted and b"basic" not in wanted:
            kinds = ", ".join(sorted(kind.decode("latin-1")[:20] for kind in wanted)[:5])
            return f"{start} takes {kinds}, not Basic (HTTP status {status}); put a proxy that takes Basic before it"
        seen = "refused the user and password" if self.authorization else "wants a user and a password"
        mend = f"write them as http://USER:PASSWORD@{self.where} in {self.source}, percent-encoded"
        return f"{start} {seen} (HTTP status {status}); {mend}"


def parse_proxy(text: str, source: str) -> Proxy:
    """Parses the URL of a proxy; without a scheme it is http.

    Raises:
        ValueError: the URL cannot be used. The message names `source` and repeats no credentials.
    """
    scheme, found, rest = text.strip().rpartition("://")
    scheme = scheme.lower() if found else "http"
    if scheme.startswith("socks"):
        raise ValueError(f"{source}: got a SOCKS proxy, which is not supported, {_EXPECTED}")
    parts = _PARTS.fullmatch(rest)
    if scheme not in _PORTS or parts is None:
        raise ValueError(f"{source}: got another URL, {_EXPECTED}")
    port = int(parts["port"] or _PORTS[scheme])
    if not 1 <= port <= 65535 or (parts["ip"] and _ip(parts["ip"]) is None):
        raise ValueError(f"{source}: got another host or port, {_EXPECTED}")
    authorization = b""
    if parts["user"]:
        user, _, password = parts["user"].partition(":")
        pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
        authorization = b"Basic " + base64.b64encode(pair)
    return Proxy(scheme, parts["ip"] or parts["host"], port, authorization, source)


def proxy_for(address: Address, setting: str | None, name: str, environ: Mapping[str, str]) -> Proxy | None:
    """Returns the proxy for a server; None if there is none.

    Args:
        setting: the server's own setting: a URL, `NONE`, or None if the environment decides.
        name: the name of that setting, for messages.

    Raises:
        ValueError: as `parse_proxy`.
    """
    if setting is not None:
        return None if setting.strip().lower() == NONE else parse_proxy(setting, name)
    found = _of_environment(address.scheme, environ)
    if found is None or is_exempt(address.host, address.port, _value(environ, "NO_PROXY")[1]):
        return None
    return parse_proxy(found[1], found[0])


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """True if `NO_PROXY` exempts a host. Its entries are separated by commas or spaces.

    `example.com` is that host and those below it, `.example.com` and `*.example.com` those below it, `*` every host;
    an IP address is itself, a CIDR block its addresses. `:PORT` behind a name or an address narrows it to that port.
    """
    name, ip = host.lower().rstrip("."), _ip(host)
    return any(_covers(entry.lower(), name, ip, port) for entry in re.split(r"[,\s]+", no_proxy) if entry)


def _covers(entry: str, name: str, ip: _IP | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return ip is not None and ip in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if _ip(entry) is None:  # else its colons are those of IPv6
        entry, colon, wanted = entry.rpartition(":") if re.search(r"[^:]:[0-9]+$", entry) else (entry, "", "")
        if colon and int(wanted) != port:
            return False
    entry = entry.strip("[]")
    if ip is not None or _ip(entry) is not None:
        return _ip(entry) == ip
    entry = entry.removeprefix("*").rstrip(".")
    return bool(entry) and (name.endswith(entry) if entry.startswith(".") else f".{name}".endswith(f".{entry}"))


def _of_environment(scheme: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns the variable that names a proxy for `scheme`, and its value."""
    for variable in (_VARIABLES[scheme], "ALL_PROXY"):
        # A web server puts the header `Proxy` of any client into HTTP_PROXY of a CGI program.
        is_of_client = variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ
        name, value = _value(environ, variable, has_capitals=not is_of_client)
        if value:
            return name, value
    return None


def _value(environ: Mapping[str, str], variable: str, *, has_capitals: bool = True) -> tuple[str, str]:
    """Returns the name and value of a variable: in small letters if it is set so, even to nothing, else in capitals."""
    for name in (variable.lower(), variable)[: 1 + has_capitals]:
        if name in environ:
            return name, environ[name].strip()
    return variable, ""


def _ip(text: str) -> _IP | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
