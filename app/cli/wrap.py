"""Turns the options of `isthmus wrap` into the `Settings` that a configuration file of one server would give."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import anyio.lowlevel
import msgspec

from ...core.base.plan import Links
from ...transports.base.tokens import TokensOf
from ..base import logs
from ..base.errors import ConfigError
from ..config.file_settings import Files
from ..config.settings import Core, Server, ServerTasks, Settings, Storage, ToolFilter, Upstream
from ..config.tls_settings import Tls
from ..config.ui_settings import Ui
from ..config.value_checks import check_selection

if TYPE_CHECKING:
    from ..logins.wrapped import WrapTokens

_CODE_FOLLOWS = ("-c", "-e", "-m")


def to_settings(
    options: argparse.Namespace,
    targets: Sequence[tuple[Upstream, str]],
    core: Core,
    *,
    is_inspected: bool,
    unix_socket: str | None = None,
) -> Settings:
    """Returns the settings of wrapped servers, each given by its upstream and its id.

    Raises:
        ConfigError: options contradict each other.
    """
    is_only = len(targets) == 1
    if not is_only and unix_socket is not None:
        raise ConfigError("got --listen stdio+unix:… with several servers, expected it with one")
    has_command = any(upstream.command is not None for upstream, _ in targets)
    servers = []
    for upstream, id in targets:
        given = options
        if has_command and upstream.command is None:  # --share and --warm are for the commands
            given = argparse.Namespace(**{**vars(options), "share": "none", "warm": None})
        servers.append(_to_server(given, upstream, id, is_inspected=is_inspected, unix_socket=unix_socket))
    if options.open and not any(map(may_log_in, servers)):
        raise ConfigError("got --open with what no login is for, expected it with a URL alone")
    storage = Storage() if options.storage is None else Storage(root=os.path.abspath(options.storage))
    # A wrapped server has one user, who wants to see every message and to send some again.
    ui = Ui(actions=True, keep=True)
    return Settings(core=core, storage=storage, ui=ui, servers=tuple(servers))


def _to_server(
    options: argparse.Namespace, upstream: Upstream, id: str, *, is_inspected: bool, unix_socket: str | None
) -> Server:
    tools = ToolFilter(include=tuple(options.include_tool), exclude=tuple(options.exclude_tool))
    for problem in check_selection("tools", tools.selection):
        raise ConfigError(f"got --include-tool or --exclude-tool with an empty value, expected {problem.expected}")
    if not is_inspected and tools.selection:
        raise ConfigError("got --include-tool or --exclude-tool with --no-inspect, which looks into nothing")
    if not is_inspected and unix_socket is not None:
        raise ConfigError("got --no-inspect with --listen stdio+unix:…, expected it with HTTP only")
    if not is_inspected and options.era != "auto":
        raise ConfigError("got --era with --no-inspect, which translates nothing")
    if not is_inspected and options.tasks != "own":
        raise ConfigError("got --tasks with --no-inspect, which looks into nothing")
    if not is_inspected and options.files:
        raise ConfigError("got --files with --no-inspect, which looks into nothing")
    if not is_inspected and options.storage is not None:
        raise ConfigError("got --storage with --no-inspect, which keeps nothing")
    if upstream.transport == "sse" and options.era == "stateless":
        raise ConfigError("got --era stateless with an sse+ URL, expected auto or handshake: HTTP+SSE is of 2024-11-05")
    if options.share != "none" and (upstream.command is None or options.files):
        raise ConfigError("got --share with a URL or --files, expected it with a command and without --files")
    if options.warm not in (None, "auto", 0) and (upstream.command is None or options.share != "none"):
        raise ConfigError("got --warm with a URL or --share, expected it with a command of which each session has one")
    roots = _artifact_roots(options)
    upstream = msgspec.structs.replace(upstream, era=options.era)
    if options.files:
        upstream = _absolute(upstream)
    server = Server(
        id=id,
        upstream=upstream,
        inspect=is_inspected,
        tools=tools,
        tasks=ServerTasks(offer=options.tasks) if is_inspected else ServerTasks(),
        share=options.share,
        files=_files(options),
        artifact_roots=roots,
        unix_socket=unix_socket,
    )
    return server if options.warm is None else msgspec.structs.replace(server, warm=options.warm)


def tls_of(options: argparse.Namespace, *, has_port: bool) -> Tls | None:
    """Returns what the options say about TLS; None: plain HTTP.

    Raises:
        ConfigError: one option without the other, or without a port.
    """
    certificate, key = options.tls_certificate, options.tls_key
    if certificate is None and key is None:
        return None
    if not has_port:
        raise ConfigError("got --tls-certificate or --tls-key, expected them with --listen HOST:PORT only")
    if certificate is None or key is None:
        given, lacking = (
            ("--tls-key", "--tls-certificate") if certificate is None else ("--tls-certificate", "--tls-key")
        )
        raise ConfigError(f"got {given} without {lacking}, expected both")
    return Tls(certificate=os.path.abspath(certificate), key=os.path.abspath(key))


class WrapLogin(NamedTuple):
    """The logins at the wrapped servers. `open_browser` opens one once requests want a login, and then returns."""

    tokens: Mapping[str, TokensOf]
    open_browser: Callable[[], Coroutine[Any, Any, None]]


def login_of(settings: Settings, *, opens: bool, is_stdio: bool) -> WrapLogin:
    """Returns the logins at the wrapped servers; without tokens if none can have one.

    Args:
        opens: a browser may be opened.
        is_stdio: the client is on stdio, and waits for a login in progress.
    """
    servers = list(filter(may_log_in, settings.servers))
    if not servers:
        return WrapLogin({}, anyio.lowlevel.checkpoint)
    from ..logins.store import CredentialStore, default_folder  # late: a command has no login
    from ..logins.wrapped import HOLD_S, Opener, WrapTokens

    store = CredentialStore(default_folder())
    openers: list[Opener] = []
    found: dict[str, TokensOf] = {}
    for server in servers:
        opener = Opener(server.upstream, store, logs.say) if opens else None
        tokens = WrapTokens(
            server.id,
            server.upstream,
            store,
            ("isthmus", "login", server.upstream.url or ""),
            holds_s=HOLD_S if is_stdio else 0.0,
            say=logs.say,
            opener=opener,
        )
        found[server.id] = functools.partial(_same, tokens)
        openers += [] if opener is None else [opener]

    async def open_browsers() -> None:
        async with anyio.create_task_group() as tasks:
            for opener in openers:
                tasks.start_soon(opener.run)

    return WrapLogin(found, open_browsers if openers else anyio.lowlevel.checkpoint)


def _same(tokens: WrapTokens, principal: str) -> WrapTokens:
    return tokens


def may_log_in(server: Server) -> bool:
    """True if a login may be used at a server: it has a URL, and the options set no `Authorization`."""
    upstream = server.upstream
    sets = [*upstream.headers, *(sent for _, sent in upstream.passes)]
    is_free = server.inspect and not any(name.lower() == "authorization" for name in sets)
    return is_free and (upstream.url or "").startswith(("http", "sse+", "ws"))


def _files(options: argparse.Namespace) -> Files | Literal["auto", "none"]:
    if options.links is None:
        return "auto" if options.files else "none"
    if not options.files:
        raise ConfigError("got --links without --files, expected it with --files only")
    return Files(links=Links(options.links))


def _artifact_roots(options: argparse.Namespace) -> tuple[str, ...]:
    if options.artifact_root and not options.files:
        raise ConfigError("got --artifact-root without --files, expected it with --files only")
    for folder in options.artifact_root:
        if not os.path.isdir(folder):
            raise ConfigError(f"got --artifact-root {folder}, expected a folder that exists")
    return tuple(map(os.path.abspath, options.artifact_root))


def _absolute(upstream: Upstream) -> Upstream:
    """Makes the paths in the command absolute, since it will run in a folder of its session, not in this one.

    With a working directory given, only that is made absolute.
    """
    if upstream.command is None:
        return upstream
    if upstream.cwd is not None:
        is_placed = upstream.cwd.startswith("{")
        return upstream if is_placed else msgspec.structs.replace(upstream, cwd=os.path.abspath(upstream.cwd))
    return msgspec.structs.replace(upstream, command=absolute_files(upstream.command))


def absolute_files(command: Sequence[str]) -> tuple[str, ...]:
    """Returns `command` with relative paths of existing files made absolute, and logs each change.

    Arguments are changed if they name a regular file, the program only if it has a slash in it. An argument after -c,
    -e or -m is no path.
    """
    arguments = list(command)
    for i, argument in enumerate(command):
        is_program = i == 0
        if os.path.isabs(argument) or (is_program and "/" not in argument) or (i and command[i - 1] in _CODE_FOLLOWS):
            continue
        if "\0" not in argument and os.path.isfile(argument):
            arguments[i] = os.path.abspath(argument)
            logs.say(f"{argument} is handed on as {arguments[i]}, for the command runs in a folder of its session")
    return tuple(arguments)
