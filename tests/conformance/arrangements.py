"""What stands between a suite and our peer: nothing, or Isthmus, with a peer of the same era or of the other one."""

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
"""Sets a cell up, with a folder for its logs, and gives the suite's arguments for it."""

DIRECT: Final = "direct"
ACROSS: Final = "other era, "
"""What the columns begin with in which the peer is of the era that the suite is not of."""


def server_arrangements(suite: Suite, urls: Mapping[str, str]) -> dict[str, Arrangement]:
    """The suite as client.

    Args:
        urls: where the server of each suite serves over HTTP, by its name. Over stdio Isthmus starts it.
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

    other = OTHER[suite.name]
    return {
        DIRECT: direct(),
        "HTTP upstream": proxied(urls[suite.name]),
        "stdio upstream": proxied(*suite.server_command, "stdio"),
        f"{ACROSS}HTTP": proxied(urls[other.name]),
        f"{ACROSS}stdio": proxied(*other.server_command, "stdio"),
    }


def between(suite: Suite, target: Sequence[str | Path], folder: Path) -> AbstractContextManager[rig.Proxy]:
    """Isthmus before a URL or a command: by itself, or with a configuration if it is told more than that."""
    if suite.tasks is None:
        return rig.wrap(*target, folder=folder)
    words = [str(word) for word in target]
    upstream = {"command": words} if len(words) > 1 else {"url": words[0]}
    server = {"id": "peer", "upstream": upstream, "tasks": suite.tasks}
    config = folder / "isthmus.json"
    settings = {"core": {"port": 0}, "storage": {"root": "data"}, "servers": [server]}
    config.write_text(json.dumps(settings), encoding="utf-8")
    return rig.serve(config, folder=folder)


def client_arrangements(suite: Suite) -> dict[str, Arrangement]:
    """The suite as server. It hands the command that it is given to a shell, followed by its URL."""

    def started(*command: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            words = [str(folder if part is FOLDER else part) for part in command]
            yield ["client", "--timeout", str(CLIENT_TIMEOUT_MS), "--command", shlex.join(words)]

        return arrange

    own = ("node", suite.client, suite.node_modules)
    other = ("node", OTHER[suite.name].client, OTHER[suite.name].node_modules)
    # The suite's servers of 2026-07-28 take a handshake, too, and count it as a fault.
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


FOLDER: Final = Path("FOLDER")
"""Stands in a command for the folder of a cell's logs."""


@contextlib.contextmanager
def reference_server(suite: Suite, folder: Path) -> Iterator[str]:
    """Our server of this era over HTTP: its URL."""
    folder.mkdir(parents=True)
    with rig.launched([*suite.server_command, "http"], folder=folder, code=None) as process:
        yield process.wait_line(r"listening on (\S+)")[1]
