"""What stands between a suite and our peer: nothing, or Isthmus, with a peer of the same era or of the other one."""

from __future__ import annotations

import contextlib
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
        urls: where the server of each revision serves over HTTP. Over stdio Isthmus starts it.
    """

    def direct() -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            yield ["server", "--url", urls[suite.revision]]

        return arrange

    def proxied(*target: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            with rig.wrap(*target, folder=folder) as proxy:
                yield ["server", "--url", proxy.url]

        return arrange

    other = OTHER[suite.revision]
    return {
        DIRECT: direct(),
        "HTTP upstream": proxied(urls[suite.revision]),
        "stdio upstream": proxied("node", suite.server, suite.node_modules, "stdio"),
        f"{ACROSS}HTTP": proxied(urls[other.revision]),
        f"{ACROSS}stdio": proxied("node", other.server, other.node_modules, "stdio"),
    }


def client_arrangements(suite: Suite) -> dict[str, Arrangement]:
    """The suite as server. It hands the command that it is given to a shell, followed by its URL."""

    def started(*command: str | Path) -> Arrangement:
        @contextlib.contextmanager
        def arrange(folder: Path) -> Iterator[Sequence[str | Path]]:
            words = [str(folder if part is FOLDER else part) for part in command]
            yield ["client", "--timeout", str(CLIENT_TIMEOUT_MS), "--command", shlex.join(words)]

        return arrange

    own = ("node", suite.client, suite.node_modules)
    other = ("node", OTHER[suite.revision].client, OTHER[suite.revision].node_modules)
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
    with rig.launched(["node", suite.server, suite.node_modules, "http"], folder=folder) as process:
        yield process.wait_line(r"listening on (\S+)")[1]
