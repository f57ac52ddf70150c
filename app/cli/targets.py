"""Arguments of `isthmus wrap`: the servers to wrap."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import PurePath
from typing import Final

from ...core.wire.http.egress import NONE, parse_proxy
from ...transports.base.endpoint import Endpoint
from ..base.errors import ConfigError
from ..config.addresses import settle
from ..config.documents import without_credentials
from ..config.option_values import environment_of, expanded, headers_of
from ..config.profiles import DEFAULT
from ..config.settings import Upstream
from ..config.upstream_checks import check_pass_headers
from ..config.value_types import ID_PATTERN
from .wrong_targets import explain_command, explain_target

SERVER_FORM: Final = "[NAME=]URL or [NAME=]'COMMAND ARG …'"


def targets_of(options: argparse.Namespace, command: list[str]) -> list[tuple[Upstream, str]]:
    """Returns the servers to wrap: the one of URL or COMMAND, or those of `--server`.

    Raises:
        ConfigError: there is none, or one cannot be used.
    """
    if not options.server:
        return [target_of(options, command)]
    if options.target is not None or command:
        raise ConfigError("got --server and a URL or a command to wrap, expected --server for each of them")
    for option, value in _options_of_one(options):
        if value:
            raise ConfigError(
                f"got {option} with --server, expected it for one server alone; "
                "a configuration file, for isthmus serve --all, sets it for each server"
            )
    found: dict[str, Upstream] = {}
    for text in options.server:
        upstream, id = _target_in(options, text)
        if id in found:
            raise ConfigError(f"got two servers with the name {id}, expected --server NAME=… for one of them")
        if id == DEFAULT and len(options.server) > 1:
            raise ConfigError(f"got --server with the name {id}, which is that of all servers, expected another one")
        found[id] = upstream
    return [(upstream, id) for id, upstream in found.items()]


def _options_of_one(options: argparse.Namespace) -> tuple[tuple[str, object], ...]:
    """Returns the options that are for one server alone, with their values: one that has a secret must not reach all
    servers, and one that names a tool is about the tools of one."""
    return (
        ("--env", options.env),
        ("--cwd", options.cwd),
        ("--header", options.header),
        *_url_options(options),
        ("--no-inspect", options.no_inspect),
        ("--include-tool", options.include_tool),
        ("--exclude-tool", options.exclude_tool),
        ("--era", options.era != "auto"),
        ("--files", options.files),
    )


def _target_in(options: argparse.Namespace, text: str) -> tuple[Upstream, str]:
    """Returns the server in the value of a `--server`. Errors never repeat it: it may hold a secret."""
    named = re.match(r"([^\s:/='\"]*)=", text)
    name = named and named[1]
    if name is not None:
        if re.fullmatch(ID_PATTERN, name) is None:
            raise ConfigError(
                f"got --server with the name {name!r}, expected letters, digits, dots, hyphens and underscores"
            )
        text = text.removeprefix(f"{name}=")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"got --server with a command of which {error}, expected it as in a shell") from None
    if not words:
        raise ConfigError(f"got --server with nothing to wrap, expected {SERVER_FORM}")
    is_url = len(words) == 1 and "://" in text
    own = {"target": text} | ({"inherit_env": False} if is_url else {"target": None})
    upstream, id = target_of(argparse.Namespace(**{**vars(options), **own}), [] if is_url else words)
    return upstream, name or id


def target_of(options: argparse.Namespace, command: list[str]) -> tuple[Upstream, str]:
    url = None if options.target is None else expanded(options.target, "the URL")
    if (url is None) == (not command):
        given = "nothing" if url is None else "both a URL and a command"
        raise ConfigError(f"got {given} to wrap, expected a URL, or -- COMMAND ARG…; several are --server each")
    if url is not None:
        known = r"(https?|wss?)://[^/]" if options.no_inspect else r"((sse\+)?https?|wss?)://[^/]|unix:///."
        if not re.match(known, url):
            if "://" not in url:
                raise ConfigError(explain_target(url))
            expected = "http(s)://… or ws(s)://…"
            if not options.no_inspect:
                expected = "http(s)://…, sse+http(s)://…, ws(s)://… or unix:///…"
            raise ConfigError(f"got the URL {without_credentials(url)}, expected {expected}")
        if options.env or options.cwd or options.inherit_env:
            raise ConfigError("got --env, --inherit-env or --cwd with a URL, expected them with a command only")
        headers = headers_of(options.header)
        url, transport = settle(url, None)
        if transport == "unix":
            if headers:
                raise ConfigError("got --header with a unix:// URL, expected it with an http or ws URL only")
            for option, value in _url_options(options):
                if value:
                    raise ConfigError(f"got {option} with a unix:// URL, expected it with an http or ws URL only")
            return Upstream(url=url, transport=transport), _id_from(PurePath(url).stem)
        try:
            Endpoint(url, tuple(headers.items()))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        id = _id_from(url.partition("://")[2].split("/")[0])
        ca_file = None if options.ca_file is None else os.path.abspath(options.ca_file)
        upstream = Upstream(
            url=url,
            transport=transport,
            headers=headers,
            pass_headers=tuple(options.pass_header),
            verify_tls=not options.insecure,
            ca_file=ca_file,
            proxy=_proxy(options),
        )
        for problem in check_pass_headers("", upstream):
            raise ConfigError(f"--pass-header: {problem.seen}, expected {problem.expected}")
        return upstream, id
    if options.no_inspect:
        raise ConfigError("got --no-inspect with a command, expected it with a URL only")
    if options.header:
        raise ConfigError("got --header with a command, expected it with a URL only")
    for option, value in _url_options(options):
        if value:
            raise ConfigError(f"got {option} with a command, expected it with a URL only")
    if wrong := explain_command(command):
        raise ConfigError(wrong)
    env = environment_of(options.env)
    upstream = Upstream(command=tuple(command), env=env, cwd=options.cwd, inherit_env=options.inherit_env)
    return upstream, id_of(command)


def _url_options(options: argparse.Namespace) -> tuple[tuple[str, object], ...]:
    """Returns the options that only a URL can have besides `--header`, with their values."""
    return (
        ("--pass-header", options.pass_header),
        ("--ca-file", options.ca_file),
        ("--insecure", options.insecure),
        ("--proxy", options.proxy),
    )


def _proxy(options: argparse.Namespace) -> str | None:
    if options.proxy is None:
        return None
    proxy = expanded(options.proxy, "--proxy")
    if proxy.strip().lower() != NONE:
        try:
            parse_proxy(proxy, "--proxy")
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return proxy


_RUNNERS: Final = frozenset({"npx", "uvx", "bunx", "pnpx", "node", "python", "python3", "uv", "pipx", "run"})
_VAGUE: Final = frozenset(
    {"app", "bin", "build", "cli", "dist", "index", "lib", "local", "main", "out", "server", "src", "start", "usr"}
)


def id_of(command: list[str]) -> str:
    """Returns the server id for a wrapped command."""
    return _id_from(_program(command))


def _program(command: list[str]) -> str:
    """Returns the name of the program that runs.

    That is `thing` for `npx -y @scope/thing@1.2 --flag` and for `node /srv/thing/dist/index.js`.
    """
    before = ["", *command]  # an argument after -c or -e is code
    parts = [part for part, previous in zip(command, before, strict=False) if previous not in ("-c", "-e")]
    paths = [path for part in parts if not part.startswith("-") and (path := PurePath(part)).name]
    program = next((path for path in paths if path.name not in _RUNNERS), paths[0] if paths else PurePath("server"))
    specific = (path for path in (program, *program.parents) if path.name and path.stem not in _VAGUE)
    name = next(specific, program).name
    return name.rsplit("@", 1)[0] or name


def _id_from(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "server"
