"""Turns the options of `isthmus wrap` into the `Settings` that a configuration file of one server would give."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

import msgspec

from ..base import logs
from ..config.load import ConfigError
from ..config.login_settings import OAuth
from ..config.settings import Core, Server, ServerTasks, Settings, Storage, ToolFilter, Upstream
from ..config.value_checks import check_selection

_CODE_FOLLOWS = ("-c", "-e", "-m")


def to_settings(
    options: argparse.Namespace,
    upstream: Upstream,
    id: str,
    core: Core,
    *,
    is_inspected: bool,
    unix_socket: str | None = None,
) -> Settings:
    """Returns the settings of one wrapped server.

    Raises:
        ConfigError: options contradict each other.
    """
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
        files="auto" if options.files else "none",
        artifact_roots=roots,
        unix_socket=unix_socket,
    )
    storage = Storage() if options.storage is None else Storage(root=os.path.abspath(options.storage))
    return Settings(core=core, storage=storage, servers=(server,))


async def with_login(settings: Settings) -> tuple[Settings, Callable[[str], tuple[str, ...]]]:
    """Returns the settings with the login that a person has made at the URL, if there is one, and what makes one.

    Headers of the options take precedence over a login.
    """
    server = settings.servers[0]
    upstream = server.upstream
    url = upstream.url or ""
    sets = [*upstream.headers, *(sent for _, sent in upstream.passes)]
    is_open = server.inspect and not any(name.lower() == "authorization" for name in sets)
    if url.startswith(("http", "sse+", "ws")) and is_open:
        from ..logins.records import is_logged_in  # late: a command has no login
        from ..logins.store import CredentialStore, StoreError, default_folder

        folder = default_folder()
        try:
            if os.path.isdir(folder) and await is_logged_in(CredentialStore(folder), upstream):
                upstream = msgspec.structs.replace(upstream, auth=OAuth())
                server = msgspec.structs.replace(server, upstream=upstream)
        except StoreError as error:
            logs.say(f"the logins cannot be used: {error}")
    return msgspec.structs.replace(settings, servers=(server,)), lambda _: ("isthmus", "login", url)


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
