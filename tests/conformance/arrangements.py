"""The arrangements of a suite and our peer: directly, or with Isthmus between, and a peer of the same era or the
other."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from suites import CLIENT_TIMEOUT_MS, HERE, MODERN, OTHER, Suite, rig

Arrangement = Callable[[Path], AbstractContextManager[Sequence[str | Path]]]
"""A function that sets up a cell, with a folder for its logs, and yields the suite's arguments."""

DIRECT: Final = "direct"
ACROSS: Final = "other era, "
"""The beginning of the names of columns with a peer of the other era."""
PROFILED: Final = "profile, "
"""The beginning of the names of columns through a profile of the peer alone."""
PROFILE: Final = "all"
"""The id of that profile."""


def server_arrangements(suite: Suite, urls: Mapping[str, str]) -> dict[str, Arrangement]:
    """Returns the arrangements with the suite as client.

    Args:
        urls: the HTTP URL of the server for each suite, by its name. Over stdio Isthmus starts the server.
    """

    def direct() -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            yield ["server", "--url", urls[suite.name]]

        return arrange

    def proxied(*target: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            with between(suite, target, folder) as proxy:
                yield ["server", "--url", proxy.url]

        return arrange

    def profiled(*target: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            with configured(suite, target, folder) as proxy:
                yield ["server", "--url", proxy.url_of(PROFILE)]

        return arrange

    other = OTHER[suite.name]
    return {
        DIRECT: direct(),
        "HTTP upstream": proxied(urls[suite.name]),
        "stdio upstream": proxied(*suite.server_command, "stdio"),
        f"{ACROSS}HTTP": proxied(urls[other.name]),
        f"{ACROSS}stdio": proxied(*other.server_command, "stdio"),
        f"{PROFILED}HTTP": profiled(urls[suite.name]),
        f"{PROFILED}other era": profiled(urls[other.name]),
    }


def between(suite: Suite, target: Sequence[str | Path], folder: Path) -> AbstractContextManager[rig.Proxy]:
    """Runs Isthmus before a URL or a command, with a configuration if the suite has options."""
    return rig.wrap(*target, folder=folder) if suite.tasks is None else configured(suite, target, folder)


def configured(suite: Suite, target: Sequence[str | Path], folder: Path) -> AbstractContextManager[rig.Proxy]:
    """Runs Isthmus with a configuration: the server, and a profile of it alone whose names are the server's."""
    words = [str(word) for word in target]
    upstream = {"command": words} if len(words) > 1 else {"url": words[0]}
    server = {"id": "peer", "upstream": upstream} | ({} if suite.tasks is None else {"tasks": suite.tasks})
    config = folder / "isthmus.json"
    settings = {
        "core": {"port": 0},
        "storage": {"root": "data"},
        "servers": [server],
        "profiles": [{"id": PROFILE, "servers": [{"id": "peer", "alias": ""}]}],
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    return rig.serve(config, folder=folder)


def client_arrangements(suite: Suite) -> dict[str, Arrangement]:
    """Returns the arrangements with the suite as server. The suite hands the command to a shell, followed by its
    URL."""

    def started(*command: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            words = [str(folder if part is FOLDER else part) for part in command]
            yield ["client", "--timeout", str(CLIENT_TIMEOUT_MS), "--command", shlex.join(words)]

        return arrange

    own = ("node", suite.client, suite.node_modules)
    other = ("node", OTHER[suite.name].client, OTHER[suite.name].node_modules)
    # The suite's servers of 2026-07-28 take a handshake too, and count it as a failure.
    era = ("--era", "stateless") if suite is MODERN else ()
    through = (sys.executable, HERE / "through.py", FOLDER, *era, "--")
    wrap = (rig.ISTHMUS, "wrap", "--listen", "stdio", *era)
    return {
        DIRECT: started(*own),
        "HTTP downstream": started(*through, *own),
        "stdio downstream": started(*own, *wrap),
        f"{ACROSS}HTTP": started(*through, *other),
        f"{ACROSS}stdio": started(*other, *wrap),
    }


def login_arrangements(suite: Suite) -> dict[str, Arrangement]:
    """Returns the arrangements with the suite as a server that wants a login. Isthmus logs in, in place of a client."""

    @contextlib.contextmanager
    def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
        era = "stateless" if suite.folder == MODERN.folder else "handshake"
        words = [sys.executable, str(HERE / "logged_in.py"), str(folder), era]
        yield ["client", "--timeout", str(CLIENT_TIMEOUT_MS), "--command", shlex.join(words)]

    return {LOGGED_IN: arrange}


LOGGED_IN: Final = "isthmus logs in"
FOLDER: Final = Path("FOLDER")
"""The placeholder in a command for the folder of a cell's logs."""


@contextlib.contextmanager
def reference_server(suite: Suite, folder: Path) -> Iterator[str]:
    """Runs our server of this era over HTTP. Yields its URL."""
    folder.mkdir(parents=True)
    with rig.launched([*suite.server_command, "http"], folder=folder, code=None) as process:
        yield process.wait_line(r"listening on (\S+)")[1]
