"""The released servers that `released.py` tests: their packages, with versions, and how each is started.

Commands and environments may contain {home} for the folder of an environment, {here} for this folder, {work} for the
folder that servers work in, and {port} for the port to listen on. Servers without {port} choose one, and print it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "real"))
import rig  # noqa: E402 (it lies beside the tests that share it)

HOME: Final = rig.ROOT / "build" / "released"
"""The folder of all installed packages and all output."""
WORK: Final = HOME / "work"


class Environment(NamedTuple):
    """Packages that are installed together.

    Attributes:
        packages: each with its version. The ones that name servers come first.
    """

    packages: Sequence[str]
    is_node: bool = False


ENVIRONMENTS: Final[Mapping[str, Environment]] = {
    "node1": Environment(
        (
            "@modelcontextprotocol/server-everything@2026.8.31",
            "@modelcontextprotocol/server-filesystem@2026.8.31",
            "@modelcontextprotocol/server-memory@2026.8.31",
            "@playwright/mcp@0.0.83",
        ),
        is_node=True,
    ),
    "node2": Environment(("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2"), is_node=True),
    "python1": Environment(("mcp==1.30.0",)),
    "python2": Environment(
        ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19", "mcp==2.3.0")
    ),
    "fastmcp": Environment(("fastmcp==4.1.2", "mcp==2.3.0")),
    "markitdown": Environment(("markitdown-mcp==0.0.1a7", "mcp==2.3.0")),
}


class Server(NamedTuple):
    """A server over one transport.

    Attributes:
        package: its name in the table, one of the packages of its environment, without the version.
        on: the key of its environment.
        command: program and arguments.
        path: the path of its URL. None for stdio.
        env: its environment variables.
        is_safe: True to call only tools that are declared read-only.
        timeout_s: the limit for an answer. Over stdio a process starts for each conversation, which takes most of it.
            Over HTTP only slow tools need it.
    """

    package: str
    on: str
    command: Sequence[str]
    path: str | None = None
    env: Mapping[str, str] = {}
    is_safe: bool = False
    timeout_s: float = 12.0

    @property
    def transport(self) -> str:
        return "stdio" if self.path is None else "HTTP"

    @property
    def id(self) -> str:
        """The stem of its files' names."""
        return f"{self.package.removeprefix('@').replace('/', '-')}-{self.version}.{self.transport.lower()}"

    @property
    def version(self) -> str:
        for package in ENVIRONMENTS[self.on].packages:
            name, _, version = package.replace("==", "@").rpartition("@")
            if name == self.package:
                return version
        raise LookupError(f"{self.package} is not among the packages of {self.on}")

    def words(self, port: int) -> list[str]:
        return [self._filled(word, port) for word in self.command]

    def surroundings(self, port: int) -> dict[str, str]:
        return {name: self._filled(value, port) for name, value in self.env.items()}

    @property
    def takes_port(self) -> bool:
        return any("{port}" in text for text in (*self.command, *self.env.values()))

    def _filled(self, text: str, port: int) -> str:
        return text.format(home=HOME / self.on, here=HERE, work=WORK, port=port)


QUICK_S: Final = 8.0
_BIN, _NPM = "{home}/bin/", "{home}/node_modules/.bin/"
_EXAMPLE = (_BIN + "python", "{here}/example.py")
_PLAYWRIGHT = (_NPM + "playwright-mcp", "--headless", "--no-sandbox", "--isolated", "--output-dir", "{work}/out")
_LOOPBACK = {"NODE_OPTIONS": "--import {here}/preload.mjs"}  # otherwise it would bind every address

SERVERS: Final = (
    Server("@modelcontextprotocol/server-everything", "node1", (_NPM + "mcp-server-everything",)),
    Server(
        "@modelcontextprotocol/server-everything",
        "node1",
        (_NPM + "mcp-server-everything", "streamableHttp"),
        path="/mcp",
        env={**_LOOPBACK, "PORT": "{port}"},
        timeout_s=20.0,
    ),
    Server(
        "@modelcontextprotocol/server-filesystem", "node1", (_NPM + "mcp-server-filesystem", "{work}"), is_safe=True
    ),
    Server(
        "@modelcontextprotocol/server-memory",
        "node1",
        (_NPM + "mcp-server-memory",),
        env={"MEMORY_FILE_PATH": "{work}/memory.jsonl"},
    ),
    Server("@playwright/mcp", "node1", _PLAYWRIGHT, is_safe=True),
    Server("@playwright/mcp", "node1", (*_PLAYWRIGHT, "--port", "{port}"), path="/mcp", is_safe=True),
    Server("@modelcontextprotocol/server", "node2", ("node", "{here}/server2.mjs", "{home}/node_modules", "stdio")),
    Server(
        "@modelcontextprotocol/server",
        "node2",
        ("node", "{here}/server2.mjs", "{home}/node_modules", "http"),
        path="/mcp",
        timeout_s=QUICK_S,
    ),
    Server("mcp-server-fetch", "python2", (_BIN + "mcp-server-fetch",), is_safe=True),
    Server("mcp-server-git", "python2", (_BIN + "mcp-server-git", "--repository", "{work}"), is_safe=True),
    Server("mcp-server-time", "python2", (_BIN + "mcp-server-time",)),
    Server("markitdown-mcp", "markitdown", (_BIN + "markitdown-mcp",)),
    Server(
        "markitdown-mcp",
        "markitdown",
        (_BIN + "markitdown-mcp", "--http", "--host", "127.0.0.1", "--port", "{port}"),
        path="/mcp",
        timeout_s=QUICK_S,
    ),
    *(
        Server(package, on, (*_EXAMPLE, transport), path, timeout_s=12.0 if path is None else QUICK_S)
        for package, on in (("mcp", "python1"), ("mcp", "python2"), ("fastmcp", "fastmcp"))
        for transport, path in (("stdio", None), ("http", "/mcp"))
    ),
)
