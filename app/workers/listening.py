"""The listening sockets that all workers share.

The supervisor opens them and never accepts. Each worker accepts from the same queue, so a connection waits for no
certain one: that of a worker that dies or is replaced is accepted by another.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Final

from anyio.abc import SocketAttribute

from ...transports.unix.listener import listen_on, remove_socket
from ..base.errors import StartError
from ..config.settings import Settings
from ..runtime.listeners import base_url_of, place_of, port_listener
from ..runtime.token_files import Place

PORT: Final = "port"
SOCKET: Final = "socket"
LINES: Final = "lines/"
"""The beginning of the name of the socket of lines of a server; its id follows."""


class Listening:
    """The sockets of one configuration or of several in a row: one that stays as it is stays open.

    Attributes:
        base_url: the URL of the port.
    """

    def __init__(self) -> None:
        self.base_url = "http://localhost"
        self._open: dict[tuple[str, object], tuple[ExitStack, tuple[socket.socket, ...]]] = {}
        self._wanted: list[tuple[str, object]] = []

    async def open(self, settings: Settings) -> None:
        """Opens the sockets of a configuration that are not open yet. Those that it does not name stay open until
        `close_others`.

        Raises:
            StartError: an address is taken or may not be used. The sockets are as they were.
        """
        wanted = list(_names(settings))
        fresh: list[tuple[str, object]] = []
        try:
            for key in wanted:
                if key not in self._open:
                    self._open[key] = await self._opened(settings, key)
                    fresh.append(key)
        except StartError:
            for key in fresh:
                self._open.pop(key)[0].close()
            raise
        self._wanted = wanted
        ports = [self._open[key][1][0].getsockname()[1] for key in wanted if key[0] == PORT]
        self.base_url = base_url_of(settings, ports[0]) if ports else "http://localhost"

    def descriptors(self) -> dict[str, tuple[int, ...]]:
        """Returns the descriptors of the last configuration, by name."""
        return {key[0]: tuple(each.fileno() for each in self._open[key][1]) for key in self._wanted}

    def places(self) -> list[Place]:
        """Returns the addresses of the sockets for HTTP of the last configuration."""
        return [place_of(each) for key in self._wanted if key[0] in (PORT, SOCKET) for each in self._open[key][1]]

    def close_others(self) -> None:
        """Closes the sockets that the last configuration does not name."""
        for key in self._open.keys() - set(self._wanted):
            self._open.pop(key)[0].close()

    def close(self) -> None:
        self._wanted = []
        self.close_others()

    async def _opened(self, settings: Settings, key: tuple[str, object]) -> tuple[ExitStack, tuple[socket.socket, ...]]:
        stack = ExitStack()
        name, place = key
        if name == PORT:
            assert settings.core.port is not None
            listener = await port_listener(settings, settings.core.port)
            sockets = tuple(each.extra(SocketAttribute.raw_socket) for each in listener.listeners)
            for each in sockets:
                stack.enter_context(closing(each))
            return stack, sockets
        assert isinstance(place, str)
        try:
            listening = listen_on(place)
        except OSError as error:
            raise StartError(f"cannot listen on {place}: {error.strerror or error}") from error
        stack.enter_context(closing(listening))
        stack.callback(remove_socket, place)
        return stack, (listening,)


def _names(settings: Settings) -> Iterator[tuple[str, object]]:
    core = settings.core
    if core.port is not None:
        yield PORT, (core.host, core.port)
    if core.unix_socket is not None:
        yield SOCKET, core.unix_socket
    for server in settings.servers:
        if server.unix_socket is not None:
            yield f"{LINES}{server.id}", server.unix_socket
