"""`isthmus login`, `logout` and `auth`: from their options to what they do."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from ...core.logins.challenges import split_scope
from ...core.logins.metadata import is_requestable
from ..base.errors import ConfigError
from ..commands import logins
from ..config.load import load
from ..config.login_checks import http_url, logs_in_callers
from ..config.login_settings import OAuth
from ..config.settings import Storage, Upstream
from ..logins.person import How
from ..runtime.signals import Stop
from .arguments import config_path
from .config_files import has_terminal

PASSPHRASE_VARIABLE: Final = "ISTHMUS_EXPORT_KEY"

Work = Callable[[Stop], Awaitable[int]]


def log_in(options: argparse.Namespace) -> Work:
    """Returns what logs a person in.

    Raises:
        ConfigError: options contradict each other, or there is no such server.
    """
    (upstream, storage), scope = _meant(options.target, options.caller), tuple(options.scope)
    if not isinstance(upstream.auth, OAuth | None):
        raise ConfigError(
            f"got a server with auth.type {upstream.auth.__struct_config__.tag}, which needs no login of a person"
        )
    if any(split_scope(each) != (each,) for each in scope):
        raise ConfigError("got --scope with other text, expected one scope; for more, write it again")
    if options.device and (options.paste or options.port is not None):
        raise ConfigError("got --device with --paste or --port, expected it alone: it opens no page")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise ConfigError(f"got --port {options.port}, expected 1 to 65535")
    how = How(
        scope=scope,
        port=options.port,
        opens=not options.no_browser,
        pastes=options.paste,
        is_device=options.device,
        principal=options.caller,
    )

    async def work(stop: Stop) -> int:
        await logins.log_in_at(upstream, how, storage)
        return 0

    return work


def log_out(options: argparse.Namespace) -> Work:
    """Returns what removes a login.

    Raises:
        ConfigError: there is no such server.
    """
    upstream, storage = _meant(options.target, options.caller)

    async def work(stop: Stop) -> int:
        await logins.log_out_at(upstream, options.caller, storage)
        return 0

    return work


def look_after_logins(options: argparse.Namespace) -> Work:
    """Returns what `isthmus auth` does with all logins.

    Raises:
        ConfigError: there is no passphrase, or the configuration cannot be used.
    """
    words = options.words
    if len(words) > (1 if options.verb == "ls" else 2):
        raise ConfigError(f"got {len(words)} words, expected [CONFIG]{'' if options.verb == 'ls' else ' FILE'}")
    file = "" if options.verb == "ls" else words.pop()
    storage = load(words[0]).storage if words else None
    passphrase = "" if options.verb == "ls" else _passphrase(is_new=options.verb == "export")

    async def work(stop: Stop) -> int:
        if options.verb == "ls":
            await logins.list_logins(storage, as_json=options.json)
        elif options.verb == "export":
            await logins.export_all(file, passphrase, storage)
        else:
            await logins.import_all(file, passphrase, storage)
        return 0

    return work


def _passphrase(*, is_new: bool) -> str:
    """Returns the passphrase of the environment, else that which a person types: a new one twice."""
    given = os.environ.get(PASSPHRASE_VARIABLE, "")
    if given:
        return given
    if not has_terminal():
        raise ConfigError(f"there is no terminal to ask for a passphrase on: set {PASSPHRASE_VARIABLE}")
    typed = getpass.getpass("passphrase: ", sys.stderr)
    if is_new and getpass.getpass("the same again: ", sys.stderr) != typed:
        raise ConfigError("got two different passphrases, expected the same twice")
    return typed


def _meant(target: list[str], caller: str) -> tuple[Upstream, Storage | None]:
    """Returns the server that is meant: a URL, the id of one in the configuration of this folder, or CONFIG and ID; and
    the storage of the configuration.

    Args:
        caller: the caller whose login it is; "": everyone's.
    """
    if len(target) > 2:
        raise ConfigError(f"got {len(target)} words, expected [CONFIG] ID, or a URL")
    if len(target) == 1 and "://" in target[0]:
        if not is_requestable(http_url(target[0])):
            raise ConfigError("got a URL of another kind, expected https://, or http:// on this machine")
        if caller:
            raise ConfigError("got --as with a URL, expected the id of a server with auth.login_for: caller")
        return Upstream(url=target[0]), None
    path = config_path(target[0] if len(target) == 2 else None)
    settings = load(path)
    servers = {server.id: server for server in settings.servers}
    found = servers.get(target[-1])
    if found is None:
        raise ConfigError(f"{path} has no server {target[-1]}, expected one of {', '.join(servers)}")
    if found.upstream.url is None or found.upstream.url.startswith("unix:"):
        raise ConfigError(f"{target[-1]} has no http or ws URL: there is no login at a command")
    if logs_in_callers(found.upstream) != bool(caller):
        raise ConfigError(
            f"{target[-1]} has one login for everyone, expected no --as"
            if caller
            else f"{target[-1]} has a login for each caller, expected --as CALLER, such as --as token:alice"
        )
    return found.upstream, settings.storage
