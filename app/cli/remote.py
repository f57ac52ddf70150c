"""`isthmus ps`, `start`, `stop`, `restart`, `tasks`, `files` and `auth revoke`: commands to a running isthmus, and
`token show`, which prints the token that they present.

`files` may ask its storage folder instead. They are a module of their own because they need an HTTP client, which a
proxy would load for nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from ...core.wire.http.url import Address
from ...transports.base.endpoint import Endpoint
from ..base import output
from ..base.errors import ConfigError, Failed
from ..commands import (
    files as file_command,
)
from ..commands import (
    files_on_disk,
    http_client,
    server_status,
    tasks,
)
from ..commands.files_over_http import FilesOverHttp
from ..config.addresses import scheme_of
from ..config.documents import without_credentials
from ..runtime.token_files import find
from .arguments import token_of

T = TypeVar("T")


def answer(options: argparse.Namespace) -> bool:
    """Carries out the command in `options`. Returns False if a part of it failed, which was printed.

    Raises:
        ConfigError: the options contradict each other. Nothing was done.
        Failed: the command cannot be carried out.
    """
    return _COMMANDS[options.command](options)


def _ps(options: argparse.Namespace) -> bool:
    servers = isthmus_of(options).servers()
    _print(options, servers, server_status.table)
    return True


def _order(options: argparse.Namespace) -> bool:
    workers = isthmus_of(options).act(options.command, options.id).get("workers")
    where = f" in {len(workers)} workers" if isinstance(workers, list) else ""
    output.say(f"{options.id} {http_client.DONE[options.command]}{where}")
    return True


def _tasks(options: argparse.Namespace) -> bool:
    isthmus = isthmus_of(options)
    filters = {name: value for name in ("server", "status") if (value := getattr(options, name)) is not None}
    if options.verb == "list":
        _print(options, tasks.listed(isthmus, filters), tasks.table)
        return True
    if filters:
        raise ConfigError(
            f"got --{next(iter(filters))} with `tasks {options.verb}`, expected it with `tasks list` only"
        )
    if len(options.id) < http_client.PREFIX_MIN_CHARS:
        right = f"the task's id, or at least its first {http_client.PREFIX_MIN_CHARS} characters"
        raise ConfigError(f"got the id {options.id!r}, expected {right}")
    task = tasks.find(isthmus, options.id)
    if options.verb == "show":
        _print(options, task, tasks.description)
        return True
    cancelled = tasks.cancel(isthmus, task["id"])
    _print(options, cancelled, lambda _: f"{output.plain(task['id'])} is cancelled")
    return True


def _revoke(options: argparse.Namespace) -> bool:
    if options.name is None:
        raise ConfigError("got no NAME with `auth revoke`, expected a caller such as token:ci")
    path = f"/auth/revoke?{urlencode({'name': options.name})}"
    text = f"{output.plain(options.name)} is revoked: what it had so far is refused"
    _print(options, isthmus_of(options).ask("POST", path), lambda _: text)
    return True


def _files(options: argparse.Namespace) -> bool:
    print_result = partial(_print, options)
    if options.root is None:
        is_done = file_command.run(options, FilesOverHttp(isthmus_of(options)), print_result)
    else:
        with files_on_disk.held(options.root) as files:
            is_done = file_command.run(options, files, print_result)
    return is_done


def _print(options: argparse.Namespace, result: T, for_people: Callable[[T], str]) -> None:
    if options.json:
        output.say_json(result)
    else:
        output.say(for_people(result))


def isthmus_of(options: argparse.Namespace, *, is_page: bool = False) -> http_client.Isthmus:
    """Returns the running isthmus that `options` name, with the token to present: that of the options or the
    environment, else the local token.

    Args:
        is_page: they name the listener of its live page.
    """
    url, token = options.url, token_of(options.token)
    place = place_at(url, "--url")
    found = find(place if isinstance(place, str) else (place.host, place.port)) if token is None else None
    if found is None:
        return http_client.Isthmus(without_credentials(url), place, token, is_page)
    if not isinstance(place, str) and place.scheme == "http":
        # By the name `localhost`, the listener of somebody else could get the token. With TLS, a certificate prevents
        # that, and the name has to stay.
        place = msgspec.structs.replace(place, host=found.host)
    return http_client.Isthmus(without_credentials(url), place, found.token, is_page)


def show_token(options: argparse.Namespace) -> None:
    """Prints the local token of the running isthmus that `options` name, alone.

    Raises:
        ConfigError: the URL is none of an isthmus.
        Failed: no local token is found.
    """
    place, shown = place_at(options.url, "URL"), without_credentials(options.url)
    found = find(place if isinstance(place, str) else (place.host, place.port))
    if found is None:
        raise Failed(
            f"found no local token for {shown}: expected the address of an isthmus that this user runs on this machine "
            "now, without auth and core.management.token"
        )
    output.say(found.token)


def place_at(url: str, name: str) -> Address | str:
    """Returns the address of a listener, or the path of its Unix domain socket.

    Args:
        name: of the argument that has the URL.

    Raises:
        ConfigError: it is no such URL.
    """
    if url.startswith("unix:") and url.strip("/") != "unix:":
        return url.removeprefix("unix:")
    shown = without_credentials(url)
    if scheme_of(url) not in ("http", "https") or "?" in url:
        raise ConfigError(f"got {name} {shown}, expected http(s)://HOST:PORT or unix:PATH")
    try:
        return Endpoint(url).address()
    except ValueError as error:
        raise ConfigError(f"got {name} {shown}: {error}") from error


_COMMANDS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "ps": _ps,
    "start": _order,
    "stop": _order,
    "restart": _order,
    "tasks": _tasks,
    "files": _files,
    "auth": _revoke,
}
