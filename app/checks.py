"""What must hold of a configuration beyond the types of its keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from ..core.plan import LocatorMode
from ..core.selection import Selection
from ..core.wire.http_passing import may_pass
from ..transports.http_endpoint import Endpoint, is_websocket
from .addresses import SCHEMES, scheme_of, settle, unix_path
from .documents import Problem
from .settings import (
    ID_PATTERN,
    Adapter,
    ArtifactProducerAdapter,
    Core,
    Forwarding,
    McpServer,
    Server,
    Settings,
    Transport,
    UploadConsumerAdapter,
    Upstream,
)

_HTTP_TYPES: Final = ("http", "streamable-http", "streamable_http", "streamableHttp")
_SSE_SCHEMES: Final = ("sse+http", "sse+https")
_SOCKET_TYPES: Final = ("websocket", "ws")
_SERVER_SCHEMES: Final = ("http", "https", "ws", "wss")
UNIX_PATH_MAX_BYTES: Final = 103
"""What every system takes, the least being 104 with a NUL at the end."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DOTTED: Final = re.compile(r"[^.\s\[\]]+(\.[^.\s\[\]]+)*")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^/?#@:*\s\[\]]+)(:[0-9]{1,5})?")
_HOST: Final = re.compile(r"\[[0-9a-f:.]+\](:[0-9]*)?|[0-9a-f:.]+|[^/?#@:*\s\[\]]+(:[0-9]*)?")
_TOKEN: Final = re.compile(r"[!-~]+")
_URI_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


def check(settings: Settings, is_sound: Callable[[str], bool]) -> list[Problem]:
    """Everything that is wrong with `settings`, which have just been read: `mcp_servers` stand apart.

    Args:
        is_sound: whether what was read at a dotted key is what its type says. What is not is passed over.
    """
    return list(_check(settings, is_sound))


def _check(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    if is_sound("core"):
        yield from _core(settings.core)
    if is_sound("storage"):
        yield from _path("storage.root", settings.storage.root)
    if is_sound("servers") and is_sound("mcpServers") and not settings.servers:
        if not settings.mcp_servers:
            yield Problem("servers", "at least one server", "no server here or in mcpServers")
        elif all(entry.disabled for entry in settings.mcp_servers.values()):
            yield Problem("mcpServers", "at least one server that is to run", "every server is disabled")
    seen: dict[str, str] = {}
    for i, server in enumerate(settings.servers or ()):
        if server:  # some of what could not be read is None
            if is_sound(f"servers[{i}].id"):
                yield from _id(f"servers[{i}].id", server.id, seen)
            yield from _server(f"servers[{i}]", server, is_sound)
    for name, entry in (settings.mcp_servers or {}).items():
        yield from _id(f"mcpServers.{name}", name, seen)
        if is_sound(f"mcpServers.{name}"):
            yield from _mcp_server(f"mcpServers.{name}", entry)


def _core(core: Core) -> Iterator[Problem]:
    if core.public_base_url is not None:
        yield from _url("core.public_base_url", core.public_base_url, may_query=False)
    if core.unix_socket is not None:
        yield from _unix_socket("core.unix_socket", core.unix_socket)
    elif core.port is None:
        yield Problem("core.port", "a port, or a unix_socket to listen on instead")
    for i, origin in enumerate(core.allowed_origins):
        yield from check_origin(f"core.allowed_origins[{i}]", origin)
    for i, host in enumerate(core.allowed_hosts):
        yield from check_host(f"core.allowed_hosts[{i}]", host)
    if core.management is not None:  # what could not be read is None
        yield from check_token("core.management.token", core.management.token)


def check_token(key: str, token: str | None) -> Iterator[Problem]:
    """It stands in a header. What it says is a secret, also where it is wrong."""
    if token is not None and _TOKEN.fullmatch(token) is None:
        yield Problem(key, "a secret of visible ASCII characters, and no spaces", "got another text")


def check_origin(key: str, origin: str) -> Iterator[Problem]:
    """It is compared with the Origin header as a whole."""
    if _ORIGIN.fullmatch(origin.lower()) is None:
        yield Problem(key, "the origin of web pages, such as https://example.com or http://localhost:8080, and no more")


def check_host(key: str, host: str) -> Iterator[Problem]:
    """It is compared with the Host header, both without their ports."""
    if _HOST.fullmatch(host.lower()) is None:
        yield Problem(key, "a name or an address, without scheme and path")


def _id(key: str, id: str, seen: dict[str, str]) -> Iterator[Problem]:
    if re.fullmatch(ID_PATTERN, id) is None:
        right = "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit"
        yield Problem(key, right, f"got the id {id!r}")
    if id in seen:
        yield Problem(key, f"an id of its own ({seen[id]} has this one)", f"got the id {id!r}")
    seen[id] = key


def _server(key: str, server: Server, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    is_inspected = server.inspect or not is_sound(f"{key}.inspect")
    if is_sound(f"{key}.upstream"):
        yield from _upstream(f"{key}.upstream", server.upstream, is_inspected=is_inspected)
        if not is_inspected and server.upstream.command is not None:
            yield Problem(f"{key}.inspect", "false beside an upstream.url only", "got false for a command")
    if is_sound(f"{key}.forwarding"):
        yield from _forwarding(f"{key}.forwarding", server.forwarding, is_inspected=is_inspected)
    if not is_inspected:
        yield from _uninspected(key, server, is_sound)
    if is_sound(f"{key}.unix_socket") and server.unix_socket is not None:
        yield from _unix_socket(f"{key}.unix_socket", server.unix_socket)
        if not server.inspect:
            yield Problem(f"{key}.unix_socket", "none for a server with inspect: false")
    if is_sound(f"{key}.artifact_roots"):
        for i, root in enumerate(server.artifact_roots):
            yield from _path(f"{key}.artifact_roots[{i}]", root)
    if is_sound(f"{key}.required_headers"):
        for i, name in enumerate(server.required_headers):
            yield from _header_name(f"{key}.required_headers[{i}]", name)
    for kind in ("tools", "prompts", "resources"):
        if is_sound(f"{key}.{kind}"):
            yield from check_selection(f"{key}.{kind}", getattr(server, kind).selection)
    for i, adapter in enumerate(server.adapters or ()):
        if is_sound(f"{key}.adapters[{i}]"):
            yield from _adapter(f"{key}.adapters[{i}]", adapter)
            if is_sound(f"{key}.tools"):
                yield from _hidden_tools(f"{key}.adapters[{i}]", adapter, server.tools.selection)
    if is_sound(f"{key}.upstream"):
        yield from _process(key, server)


def _uninspected(key: str, server: Server, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """What could not be kept, and would be believed to be: a filter above all."""
    right = "none: with inspect: false nobody looks into what passes"
    for name in ("adapters", "artifact_roots"):
        if getattr(server, name):
            yield Problem(f"{key}.{name}", right, "got some")
    for kind in ("tools", "prompts", "resources"):
        if is_sound(f"{key}.{kind}") and getattr(server, kind).selection:
            yield Problem(f"{key}.{kind}", right, "got a filter")
    if is_sound(f"{key}.upstream") and server.upstream.pass_headers:
        yield Problem(f"{key}.upstream.pass_headers", "none with inspect: false: forwarding.allow says what passes")
    if server.start_timeout_seconds is not None:
        yield Problem(f"{key}.start_timeout_seconds", "none with inspect: false: nobody greets the server")


def _process(key: str, server: Server) -> Iterator[Problem]:
    """What is said of how its processes are used."""
    url = server.upstream.url
    if server.share != "none" and server.adapters:
        yield Problem(f"{key}.share", "none, for a server with adapters: each session has folders of its own")
    if server.share != "none" and url is not None and url.startswith(("http:", "https:")):
        yield Problem(f"{key}.share", "share beside a command only, and this server has a url")
    if url is not None:
        for name in ("warm", "idle_stop_seconds"):
            if getattr(server, name):
                yield Problem(f"{key}.{name}", f"{name} beside a command only, and this server has a url")
    if server.share != "none" and server.warm:
        yield Problem(f"{key}.warm", "0 for a server that is shared: all sessions use one process")


def _forwarding(key: str, forwarding: Forwarding, *, is_inspected: bool) -> Iterator[Problem]:
    if is_inspected and forwarding != Forwarding():
        yield Problem(key, "it with inspect: false only", "got it for a server that is inspected")
    for kind in ("allow", "deny"):
        for i, name in enumerate(getattr(forwarding, kind) or ()):
            if _HEADER_NAME.fullmatch(name) is None:  # which takes a * as well
                yield Problem(f"{key}.{kind}[{i}]", "a header name, or a glob such as x-mine-*")
    found = list(_headers(f"{key}.set", forwarding.set))
    yield from found or _usable(f"{key}.set", "http://localhost", forwarding.set)


def check_selection(key: str, selection: Selection) -> Iterator[Problem]:
    for name, entries in (("include", selection.include), ("exclude", selection.exclude)):
        for i, entry in enumerate(entries):
            if not entry.strip():
                yield Problem(f"{key}.{name}[{i}]", "a name, or a pattern such as get_*")


def _hidden_tools(key: str, adapter: Adapter, selection: Selection) -> Iterator[Problem]:
    for i, tool in enumerate(adapter.tools):
        if not selection.admits(tool):
            yield Problem(f"{key}.tools[{i}]", "a tool that this server's tools.include and tools.exclude do not hide")


def _adapter(key: str, adapter: Adapter) -> Iterator[Problem]:
    if not adapter.tools:
        yield Problem(f"{key}.tools", "the name of at least one tool")
    for i, tool in enumerate(adapter.tools):
        if not tool.strip():
            yield Problem(f"{key}.tools[{i}]", "the name of a tool")
    if isinstance(adapter, UploadConsumerAdapter):
        yield from _consumer(key, adapter)
    else:
        yield from _producer(key, adapter)


def _mcp_server(key: str, entry: McpServer) -> Iterator[Problem]:
    if entry.type in _HTTP_TYPES and entry.url is not None and scheme_of(entry.url) in _SSE_SCHEMES:
        yield Problem(f"{key}.type", "sse beside an sse+http:// or sse+https:// URL")
    elif entry.type is not None:
        yield from _type(f"{key}.type", entry.type, entry)
    if entry.args and entry.command is None:
        yield Problem(f"{key}.args", "args beside a command only")
    yield from _upstream(key, upstream_of(entry))


def _type(key: str, type: str, entry: McpServer) -> Iterator[Problem]:
    if type not in ("stdio", "sse", *_HTTP_TYPES, *_SOCKET_TYPES):
        yield Problem(key, "stdio, http, sse or websocket")
    elif (type == "stdio") != (entry.command is not None):
        yield Problem(key, "stdio beside a command, http, sse or websocket beside a url")
    elif entry.url is not None and type != "sse" and (type in _SOCKET_TYPES) != is_websocket(entry.url):
        yield Problem(key, "http beside an http:// or https:// URL, websocket beside a ws:// or wss:// URL")


def upstream_of(entry: McpServer) -> Upstream:
    """The same server in the form of `servers[].upstream`."""
    return Upstream(
        command=None if entry.command is None else (entry.command, *entry.args),
        env=entry.env,
        cwd=entry.cwd,
        url=entry.url,
        transport="sse" if entry.type == "sse" and entry.command is None else None,
        headers=entry.headers,
    )


def _upstream(key: str, upstream: Upstream, *, is_inspected: bool = True) -> Iterator[Problem]:
    if upstream.command is None and upstream.url is None:
        yield Problem(key, "one of command and url", "neither command nor url")
    elif upstream.command is not None and upstream.url is not None:
        yield Problem(key, "one of command and url", "both command and url")
    elif upstream.command is not None:
        yield from _command(key, upstream)
    elif upstream.url is not None:
        yield from _endpoint(key, upstream.url, upstream.transport, upstream.headers, is_inspected=is_inspected)
        yield from _pass_headers(key, upstream)
        for name in ("env", "cwd", "inherit_env"):
            if getattr(upstream, name):
                yield Problem(f"{key}.{name}", f"{name} beside a command only, and this server has a url")
        if upstream.ca_file is not None:
            yield from _path(f"{key}.ca_file", upstream.ca_file)


def _endpoint(
    key: str, url: str, transport: Transport | None, headers: Mapping[str, str], *, is_inspected: bool
) -> Iterator[Problem]:
    schemes, seen = SCHEMES[transport or "auto"], scheme_of(url)
    if seen in SCHEMES["auto"] and seen not in schemes:
        yield Problem(
            f"{key}.url", f"a URL with {' or '.join(f'{one}://' for one in schemes)}, for transport {transport}"
        )
        return
    if not is_inspected and (transport not in (None, "auto") or seen in (*_SSE_SCHEMES, "unix")):
        yield Problem(f"{key}.url", "a URL without a transport beside inspect: false: nothing is looked into")
        return
    url, settled = settle(url, transport)
    if settled == "unix":
        yield from _unix(key, url, headers)
        return
    found = [*_url(f"{key}.url", url, schemes=_SERVER_SCHEMES), *_headers(f"{key}.headers", headers)]
    yield from found or _usable(key, url, headers)


def _unix(key: str, url: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    path = unix_path(url)
    if path is None:
        yield Problem(f"{key}.url", "unix:// and the absolute path of a socket, such as unix:///run/server.sock")
    elif len(path.encode()) > UNIX_PATH_MAX_BYTES:
        yield Problem(f"{key}.url", f"a socket's path of at most {UNIX_PATH_MAX_BYTES} bytes")
    if headers:
        yield Problem(f"{key}.headers", "headers beside an http or ws URL only: a Unix socket carries none")


def _unix_socket(key: str, path: str) -> Iterator[Problem]:
    yield from _path(key, path)
    if len(path.encode()) > UNIX_PATH_MAX_BYTES:
        yield Problem(key, f"a path of at most {UNIX_PATH_MAX_BYTES} bytes")


def _usable(key: str, url: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    try:
        Endpoint(url, tuple(headers.items()))
    except ValueError as error:  # "got this, expected that", or only what is wrong
        problem, _, right = str(error).replace("; expected ", ", expected ").partition(", expected ")
        yield Problem(key, right or "others", problem)


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
        yield from _path(f"{key}.cwd", upstream.cwd)
    for name in ("transport", "headers", "pass_headers", "ca_file"):
        if getattr(upstream, name):
            yield Problem(f"{key}.{name}", f"{name} beside a url only, and this server has a command")
    if not upstream.verify_tls:
        yield Problem(f"{key}.verify_tls", "verify_tls beside a url only, and this server has a command")


def _url(
    key: str, url: str, *, may_query: bool = True, schemes: Sequence[str] = ("http", "https")
) -> Iterator[Problem]:
    *others, last = (f"{scheme}://" for scheme in schemes)
    right = f"an {', '.join(others)} or {last} URL with a host"
    # urlsplit drops tabs and line ends; what is judged must be what is used.
    if any(character <= " " or character == "\x7f" for character in url):
        yield Problem(key, f"{right}, without spaces and control characters")
        return
    try:
        parts = urlsplit(url)
        assert parts.port is None or parts.port >= 0
    except ValueError:
        yield Problem(key, right)
        return
    if parts.scheme == "sse":
        yield Problem(key, "an sse+http:// or sse+https:// URL with a host")
    elif parts.scheme not in schemes or not parts.hostname:
        yield Problem(key, right)
    elif parts.username is not None:
        yield Problem(key, "a URL without credentials; they belong into headers", "got a URL with credentials")
    elif not may_query and (parts.query or parts.fragment):
        yield Problem(key, f"{right} and no query")


def _headers(key: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in headers.items():
        yield from _header_name(f"{key}.{name}", name)
        if any((character < " " and character != "\t") or character == "\x7f" for character in value):
            yield Problem(f"{key}.{name}", "a header value without control characters")


def _header_name(key: str, name: str) -> Iterator[Problem]:
    if _HEADER_NAME.fullmatch(name) is None:
        yield Problem(key, "a header name: letters, digits and dashes", f"got the name {name!r}")


def _pass_headers(key: str, upstream: Upstream) -> Iterator[Problem]:
    """Each header has one way to the server, and none of them is for the proxy to set."""
    at = f"{key}.pass_headers"
    owners = {name.lower(): f"{key}.headers" for name in upstream.headers}
    read: set[str] = set()
    for i, (name, sent) in enumerate(upstream.passes):
        where = f"{at}.{name}" if isinstance(upstream.pass_headers, dict) else f"{at}[{i}]"
        for spelled in dict.fromkeys((name, sent)):
            if _HEADER_NAME.fullmatch(spelled) is None or "*" in spelled:  # it may be a secret in the wrong place
                seen = f"got the name {name!r}" if spelled == name else "got other text"
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


def _path(key: str, path: str) -> Iterator[Problem]:
    if not path.strip() or "\0" in path:
        yield Problem(key, "the path of a file or folder")
    elif path.startswith("~"):
        yield Problem(key, "an absolute path, or one from the configuration's folder: write ${HOME} for ~")


def _consumer(key: str, adapter: UploadConsumerAdapter) -> Iterator[Problem]:
    yield from _dotted(f"{key}.file_path_argument", adapter.file_path_argument)
    if _URI_SCHEME.fullmatch(adapter.uri_scheme) is None:
        yield Problem(f"{key}.uri_scheme", "a scheme such as upload://")


def _producer(key: str, adapter: ArtifactProducerAdapter) -> Iterator[Problem]:
    locator = adapter.output_locator
    at = f"{key}.output_locator"
    if adapter.output_path_argument is not None:
        yield from _dotted(f"{key}.output_path_argument", adapter.output_path_argument)
    elif locator.mode is LocatorMode.NONE:
        yield Problem(key, "output_path_argument, or another output_locator.mode", "no way to find the output")
    elif locator.mode is LocatorMode.STRUCTURED and locator.output_path_key is None:
        yield Problem(f"{at}.output_path_key", "a dotted path into the structured result, for mode structured needs it")
    if locator.output_path_key is not None:
        yield from _dotted(f"{at}.output_path_key", locator.output_path_key)
    for i, regex in enumerate(locator.output_path_regexes):
        try:
            re.compile(regex)
        except (re.error, RecursionError, OverflowError) as error:
            yield Problem(f"{at}.output_path_regexes[{i}]", f"a regular expression ({error})")


def _dotted(key: str, path: str) -> Iterator[Problem]:
    if _DOTTED.fullmatch(path) is None:
        yield Problem(key, "property names joined by dots, such as path or options.file, and no brackets")
