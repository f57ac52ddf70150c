"""Checks of `upstream`: the command of a server, or its URL and the headers sent there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...core.wire.http.egress import NONE, parse_proxy
from ...core.wire.http.header_forwarding import may_pass
from ...transports.base.endpoint import Endpoint
from ..base.problem import Problem
from .addresses import SCHEMES, scheme_of, settle, unix_path
from .documents import NEITHER
from .login_checks import check_auth
from .settings import Upstream
from .value_checks import HEADER_NAME, UNIX_PATH_MAX_BYTES, check_headers, check_path, check_url, shown_header_name

_SSE_SCHEMES: Final = ("sse+http", "sse+https")
_ANY_URL: Final = (
    "an http://, https://, sse+http://, sse+https://, ws:// or wss:// URL with a host, "
    "or unix:/// and the path of a socket"
)
_SERVER_SCHEMES: Final = ("http", "https", "ws", "wss")
URLS_MAX: Final = 32
"""The most URLs of one server: each new session looks at all of them."""


def check_upstream(key: str, upstream: Upstream, *, is_inspected: bool = True) -> Iterator[Problem]:
    yield from check_auth(key, upstream, is_inspected=is_inspected)
    given = [name for name in ("command", "url", "urls") if getattr(upstream, name) is not None]
    if not given:
        yield Problem(key, "one of command and url", NEITHER)
    elif len(given) > 1:
        yield Problem(key, "one of command and url", f"both {' and '.join(given)}")
    elif upstream.command is not None:
        yield from _command(key, upstream)
    else:
        if upstream.urls is not None:
            yield from _urls(f"{key}.urls", upstream, is_inspected=is_inspected)
        elif upstream.url is not None:
            yield from _endpoint(key, f"{key}.url", upstream, upstream.url, is_inspected=is_inspected)
        yield from check_pass_headers(key, upstream)
        for name in ("env", "cwd", "inherit_env"):
            if getattr(upstream, name):
                yield Problem(f"{key}.{name}", f"{name} beside a command only, and this server has a url")
        if upstream.ca_file is not None:
            yield from check_path(f"{key}.ca_file", upstream.ca_file)
        if upstream.proxy is not None:
            for url in upstream.all_urls[:1]:  # they have one transport
                yield from _proxy(f"{key}.proxy", upstream.proxy, url)


def _urls(at: str, upstream: Upstream, *, is_inspected: bool) -> Iterator[Problem]:
    """Checks the URLs of a server with several: each by itself, and that they differ and have one transport."""
    assert upstream.urls is not None
    key = at.rpartition(".")[0]
    if not is_inspected:
        yield Problem(at, "url beside inspect: false: requests are handed on to one server", "got urls")
        return
    if not 1 <= len(upstream.urls) <= URLS_MAX:
        yield Problem(at, f"1 to {URLS_MAX} URLs", f"got {len(upstream.urls)}")
        return
    seen: set[str] = set()
    transports: set[str] = set()
    for i, url in enumerate(upstream.urls):
        found = list(_endpoint(key, f"{at}[{i}]", upstream, url, is_inspected=is_inspected))
        # What is said of headers holds for all URLs, and is said once.
        yield from (problem for problem in found if i == 0 or problem.key.startswith(at))
        settled, transport = settle(url, upstream.transport)
        transports.add(transport)
        if settled in seen:
            yield Problem(f"{at}[{i}]", "each URL once", "got one again")
        seen.add(settled)
    if len(transports) > 1:
        yield Problem(at, "URLs of one transport", f"got {' and '.join(sorted(transports))}")


def _endpoint(key: str, at: str, upstream: Upstream, url: str, *, is_inspected: bool) -> Iterator[Problem]:
    transport, headers = upstream.transport, upstream.headers
    schemes, seen = SCHEMES[transport or "auto"], scheme_of(url)
    if seen not in schemes and seen != "sse":
        right = f"a URL with {' or '.join(f'{one}://' for one in schemes)}, for transport {transport}"
        yield Problem(at, _ANY_URL if schemes is SCHEMES["auto"] else right)
        return
    if not is_inspected and (transport not in (None, "auto") or seen in (*_SSE_SCHEMES, "unix")):
        yield Problem(at, "a URL without a transport beside inspect: false: nothing is looked into")
        return
    url, settled = settle(url, transport)
    if settled == "sse" and upstream.era == "stateless":
        yield Problem(f"{key}.era", "auto or handshake: HTTP+SSE is a transport of revision 2024-11-05")
    if settled == "unix":
        yield from _unix(key, at, url, headers)
        return
    found = [*check_url(at, url, schemes=_SERVER_SCHEMES), *check_headers(f"{key}.headers", headers)]
    yield from found or check_usable(key, url, headers)


def _unix(key: str, at: str, url: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    path = unix_path(url)
    if path is None:
        yield Problem(at, "unix:// and the absolute path of a socket, such as unix:///run/server.sock")
    elif len(path.encode()) > UNIX_PATH_MAX_BYTES:
        yield Problem(at, f"a socket's path of at most {UNIX_PATH_MAX_BYTES} bytes")
    if headers:
        yield Problem(f"{key}.headers", "headers beside an http or ws URL only: a Unix socket carries none")


def check_usable(key: str, url: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    try:
        Endpoint(url, tuple(headers.items()))
    except ValueError as error:  # its text is "got …, expected …", or only what is wrong
        problem, _, right = str(error).replace("; expected ", ", expected ").partition(", expected ")
        yield Problem(key, right, problem)


def _proxy(key: str, proxy: str, url: str) -> Iterator[Problem]:
    if unix_path(url) is not None:
        yield Problem(key, "proxy beside an http or ws URL only", "got a proxy")
    elif proxy.strip().lower() != NONE:
        try:
            parse_proxy(proxy, "")
        except ValueError as error:
            seen, _, right = str(error).removeprefix(": ").partition(", expected ")
            yield Problem(key, right, seen)


def _command(key: str, upstream: Upstream) -> Iterator[Problem]:
    assert upstream.command is not None
    if not upstream.command or not upstream.command[0].strip():
        yield Problem(f"{key}.command", "a program to start, and its arguments")
    elif upstream.command[0].startswith("~"):
        yield Problem(f"{key}.command", "another program: write ${HOME} for ~", "got a program that begins with ~")
    elif any("\0" in argument for argument in upstream.command):
        yield Problem(f"{key}.command", "arguments without NUL characters", "got one with NUL")
    for name, value in upstream.env.items():
        if not name or "=" in name or "\0" in name + value:
            yield Problem(f"{key}.env.{name}", "a name without =, and no NUL in name or value")
    if upstream.cwd is not None:
        yield from check_path(f"{key}.cwd", upstream.cwd)
    for name in ("transport", "headers", "pass_headers", "ca_file", "proxy"):
        if getattr(upstream, name):
            yield Problem(f"{key}.{name}", f"{name} beside a url only, and this server has a command")
    if not upstream.verify_tls:
        yield Problem(f"{key}.verify_tls", "verify_tls beside a url only, and this server has a command")


def check_pass_headers(key: str, upstream: Upstream) -> Iterator[Problem]:
    """Checks `pass_headers`: each header is passed once, and none is one that the proxy itself sets."""
    at = f"{key}.pass_headers"
    owners = {name.lower(): f"{key}.headers" for name in upstream.headers}
    read: set[str] = set()
    for i, (name, sent) in enumerate(upstream.passes):
        shown = shown_header_name(name)
        where = f"{at}.{shown}" if isinstance(upstream.pass_headers, dict) else f"{at}[{i}]"
        for spelled in dict.fromkeys((name, sent)):
            if HEADER_NAME.fullmatch(spelled) is None or "*" in spelled:  # it may be a misplaced secret
                seen = f"got the name {shown!r}" if spelled == name else "got other text"
                yield Problem(where, "the whole name of a header: letters, digits and dashes", seen)
            elif not may_pass(spelled):
                right = "another header: this one is set anew for each request, and never handed on"
                yield Problem(where, right, f"got {spelled}")
        if name.lower() in read:
            yield Problem(where, "each header once", f"got {name} again")
        elif sent.lower() in owners:
            yield Problem(where, f"a header of its own ({owners[sent.lower()]} sets this one)", f"got {sent}")
        read.add(name.lower())
        owners.setdefault(sent.lower(), where)
