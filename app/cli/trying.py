"""`isthmus tools`, `call`, `read` and `prompt`: from their words to the server that is meant.

The server is started anew, by the configuration as it is now, and ended with the command. A gateway that runs already
is asked by its URL, as any other server.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from ...core.base.nearest import hint
from ...core.base.setting_names import KEYS, OPTIONS, SettingNames
from ...transports.base.tokens import TokensOf
from ...transports.stdio.exit_reason import last_words
from ..base.errors import ConfigError
from ..base.sizes import MIB
from ..config.access_settings import Access, Auth
from ..config.profiles import profiles_of, servers_of
from ..config.settings import Artifacts, Core, Server, Settings
from ..gateway import running
from ..runtime.signals import Stop
from ..trying.commands import (
    Asked,
    call_tool,
    get_prompt,
    read_given,
    read_resource,
    show_all_tools,
    show_tools,
)
from ..trying.descriptions import Target
from . import config_files, wrap
from .arguments import parser
from .probe_servers import PROBE_TIMEOUT_S, without_warnings
from .run import FAILED, run
from .targets import target_of

CONFIG_SUFFIXES: Final = (".yaml", ".yml", ".toml", ".json")
READ_MAX_BYTES: Final = 128 * MIB
"""The largest file of a tool that `--save` takes: it crosses as one message."""


class _Meant(NamedTuple):
    """The server that a command names, or all of a configuration.

    Attributes:
        endpoint: its id; "" for all servers.
        rest: the words that follow it.
    """

    settings: Settings
    endpoint: str
    target: Target
    rest: list[str]
    names: SettingNames = KEYS
    tokens: Mapping[str, TokensOf] | None = None
    config: str | None = None


def try_server(options: argparse.Namespace, command: list[str]) -> int:
    """Carries out one of the four commands. Returns the exit code.

    Raises:
        ConfigError: no server is meant, or not what is asked of it.
    """
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        raise ConfigError(f"got --timeout {options.timeout:g}, expected seconds above 0")
    meant = _wrapped(options, command) if command or _is_url(options.words) else _configured(options)
    _check_rest(options.command, meant)
    given = None if getattr(options, "arguments", None) is None else read_given(options.arguments)

    async def work(stop: Stop) -> int:
        given_config = () if meant.config is None else (meant.config,)
        with without_warnings():
            async with running(
                meant.settings,
                listen=False,
                is_lasting=False,
                names=meant.names,
                login_command=lambda id: ("isthmus", "login", *given_config, id),
                tokens=meant.tokens,
            ) as service:

                def last_lines(id: str) -> str:
                    return last_words(service.stderr[id]) if service.stderr.get(id) else ""

                asked = Asked(
                    service.hub,
                    meant.endpoint,
                    meant.target,
                    as_json=options.json,
                    folder=getattr(options, "save", ""),
                    timeout_s=options.timeout or math.inf,
                    last_lines=last_lines,
                )
                return await _do(options.command, asked, meant, given)

    return run(work, if_stopped=FAILED)


async def _do(verb: str, asked: Asked, meant: _Meant, given: dict[str, object] | None) -> int:
    first, more = (meant.rest or [""])[0], meant.rest[1:]
    match verb:
        case "tools" if not meant.endpoint:
            return await show_all_tools([asked._replace(endpoint=one.id) for one in meant.settings.servers])
        case "tools":
            return await show_tools(asked, first)
        case "call":
            return await call_tool(asked, first, more, given)
        case "read":
            return await read_resource(asked, first)
        case _:
            return await get_prompt(asked, first, more)


def _check_rest(verb: str, meant: _Meant) -> None:
    """Refuses words that are too many or too few."""
    if verb == "call" and not meant.rest:
        raise ConfigError(
            f"got no tool, expected {meant.target.command('call', ['TOOL'])}; the tools: "
            f"{meant.target.command('tools')}"
        )
    if verb in ("tools", "read") and len(meant.rest) > 1:
        raise ConfigError(f"got {len(meant.rest)} words after the server, expected one at most")


def _is_url(words: Sequence[str]) -> bool:
    return bool(words) and "://" in words[0]


# --- A URL, or a command ----------------------------------------------------------------------------------------------


def _wrapped(options: argparse.Namespace, command: list[str]) -> _Meant:
    """Returns the server of a URL or a command, served as `isthmus wrap` would."""
    url, rest = ([], options.words) if command else (options.words[:1], options.words[1:])
    given = [*(f"--env={one}" for one in options.env), *(f"--header={one}" for one in options.header)]
    flags = ["--files"] if options.files else []
    as_wrap = parser().parse_args(["wrap", *given, *flags, *url])
    upstream, id = target_of(as_wrap, command)
    settings = wrap.to_settings(as_wrap, [(upstream, id)], Core(), is_inspected=True)
    login = wrap.login_of(settings, opens=False, is_stdio=False)
    shown = [*flags, *(f"--header={_name(one, ':')}: …" for one in options.header)]
    shown += [f"--env={_name(one, '=')}=…" for one in options.env]
    before = shlex.join([*shown, *url])
    after = f"-- {shlex.join(command)}" if command else ""
    return _Meant(_for_one_command(settings), id, Target(before, after), rest, OPTIONS, login.tokens)


def _name(pair: str, separator: str) -> str:
    return pair.partition(separator)[0]


# --- A configuration --------------------------------------------------------------------------------------------------


def _configured(options: argparse.Namespace) -> _Meant:
    """Returns the server or profile of a configuration that the words name; all servers if they name none.

    Raises:
        ConfigError: there is no such server, or none is named where one has to be.
    """
    for option, value in (("--env", options.env), ("--header", options.header), ("--files", options.files)):
        if value:
            raise ConfigError(
                f"got {option} with a server of a configuration, which has that itself; expected a URL or -- COMMAND"
            )
    words = list(options.words)
    options.config = words.pop(0) if words and PurePath(words[0]).suffix.lower() in CONFIG_SUFFIXES else None
    source = config_files.open_given(options)
    settings = source.settings()
    config = [] if options.config is None else [options.config]
    known = [*(server.id for server in settings.servers), *(profile.id for profile in profiles_of(settings))]
    if not words:
        if options.command == "tools":
            return _Meant(_for_one_command(settings), "", Target(shlex.join(config)), [], config=options.config)
        raise ConfigError(f"got no server, expected one of {', '.join(known)}")
    id, *rest = words
    if id not in known:
        raise ConfigError(_unknown(id, str(source.path), known))
    target = Target(shlex.join([*config, id]))
    return _Meant(_for_one_command(_only(settings, id)), id, target, rest, config=options.config)


def _unknown(id: str, path: str, known: Sequence[str]) -> str:
    if re.match(r"[\w.-]+:[0-9]+(/|$)", id):
        return f"got {id[:80]}, which is no id of a server; for a URL write http:// before it"
    if re.search(r"[\s:/\\]", id):
        return f"got a word that is no id of a server, expected one of {', '.join(known)}, http(s)://…, or -- COMMAND"
    return f"{path} has no server {id}{hint(id, known) or ', expected one of ' + ', '.join(known)}"


def _only(settings: Settings, id: str) -> Settings:
    """Leaves out the servers that are not asked: nothing of theirs is needed."""
    profile = next((one for one in profiles_of(settings) if one.id == id), None)
    if profile is None:
        return msgspec.structs.replace(settings, servers=_with_ids(settings, {id}), profiles=())
    waiting = msgspec.structs.replace(profile, list_wait_seconds=PROBE_TIMEOUT_S)
    shown = {one.id for one in servers_of(profile)}
    return msgspec.structs.replace(settings, servers=_with_ids(settings, shown), profiles=(waiting,))


def _with_ids(settings: Settings, ids: set[str]) -> tuple[Server, ...]:
    return tuple(server for server in settings.servers if server.id in ids)


def _for_one_command(settings: Settings) -> Settings:
    """Returns the settings for one command of the person who has the configuration: no rules about callers, nothing
    kept ready, and files of any size in one message."""
    servers = tuple(
        msgspec.structs.replace(server, access=Access(), inspect=True, warm=0, unix_socket=None)
        for server in settings.servers
    )
    artifacts: Artifacts = msgspec.structs.replace(settings.artifacts, max_inline_bytes=READ_MAX_BYTES)
    return msgspec.structs.replace(settings, servers=servers, core=Core(), auth=Auth(), artifacts=artifacts)
