"""The servers and proxies of the matrix: sixteen pairs of transports, and four without a proxy.

Each is started once, and must end without a trace.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from raw_clients import Client, HttpClient, PipeClient, SocketClient, SseClient
from rig import Process, Proxy, launched, stdio_wrap, wrap

SPEAKER: Final = Path(__file__).resolve().parent / "peers" / "speaker.py"
TRANSPORTS: Final = ("stdio", "http", "sse", "ws")
DIRECT: Final = "direct"
CELLS: Final = list(itertools.product(TRANSPORTS, TRANSPORTS))
"""Pairs of the downstream and the upstream transport."""
PIPES: Final = ("stdio", "sse", "ws")
"""Transports on which all messages of one side come on one stream."""


class Cells:
    """Servers and proxies, started when they are first needed."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._targets: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._proxies: dict[tuple[str, ...], Proxy] = {}
        self.logs = folder / "said"
        self.logs.mkdir()

    def target(self, up: str, *opening: str) -> tuple[str, ...]:
        """Returns the target for `isthmus wrap`: a URL or a command line."""
        command = (sys.executable, str(SPEAKER), up, str(self.logs), *opening)
        if up == "stdio":
            return command
        if (up,) not in self._targets:
            server = self._stack.enter_context(launched_server(command, self._folder))
            self._targets[up,] = (server.wait_line(r"listening on (\S+)")[1],)
        return self._targets[up,]

    def proxy(self, up: str, *opening: str) -> Proxy:
        """Returns the proxy that listens for clients on three transports."""
        key = (up, *opening)
        if key not in self._proxies:
            self._proxies[key] = self._stack.enter_context(wrap(*self.target(up, *opening), folder=self._folder))
        return self._proxies[key]

    def client(self, down: str, up: str, *opening: str) -> Client:
        """Returns a client that has not sent `initialize` yet; `down` may be `direct`."""
        if down == DIRECT:
            if up == "stdio":
                return PipeClient(self.target("stdio", *opening), folder=self._folder)
            url = self.target(up)[0].removeprefix("sse+")
            return {"http": HttpClient, "sse": SseClient, "ws": SocketClient}[up](url)
        if down == "stdio":
            return PipeClient(stdio_wrap(*self.target(up, *opening)), folder=self._folder)
        proxy = self.proxy(up, *opening)
        if down == "http":
            return HttpClient(proxy.url)
        return SseClient(f"{proxy.base_url}/sse") if down == "sse" else SocketClient(proxy.socket_url)


@contextlib.contextmanager
def launched_server(command: tuple[str, ...], folder: Path) -> Iterator[Process]:
    with launched(command, folder=folder, has_stdin=True, code=None) as process:
        yield process


@contextlib.contextmanager
def cells(folder: Path) -> Iterator[Cells]:
    with contextlib.ExitStack() as stack:
        yield Cells(folder, stack)
