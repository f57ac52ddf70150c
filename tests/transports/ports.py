"""A `Port` that records the reports of a transport, checks them against the contract, and can be waited on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import anyio
from isthmus.core.base.events import Cause, Connected, End, Opening, PostOpening
from isthmus.core.base.ids import ChannelId
from isthmus.transports.base.port import Outlet

PATIENCE_S = 20.0


class RecordingPort:
    """Channels opened through `open` are numbered from 1000; tests choose lower numbers for dialled channels."""

    def __init__(self) -> None:
        self.opened_channels: dict[ChannelId, Opening] = {}
        self.outlets: dict[ChannelId, Outlet] = {}
        self.messages: defaultdict[ChannelId, list[bytes]] = defaultdict(list)
        self.sent_bytes: defaultdict[ChannelId, int] = defaultdict(int)
        self.closes: dict[ChannelId, Cause] = {}
        self._changed = anyio.Event()

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        channel = ChannelId(1000 + len(self.outlets))
        self.outlets[channel] = outlet
        self.opened_channels[channel] = opening
        self._change()
        return channel

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        channel = self.open(opening, outlet)
        self.message(channel, message)
        return channel

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        assert messages
        for message in messages:
            self.message(channel, message)

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        self.opened(channel, opening)
        if message is not None:
            self.message(channel, message)
        self.closed(channel, Cause(End.DONE))

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        self.sent(channel, size_bytes)
        self.closed(channel, Cause(End.DONE))

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        assert channel not in self.opened_channels, f"channel {channel} opened twice"
        assert channel not in self.closes, f"channel {channel} opened after its end"
        self.opened_channels[channel] = opening
        self._change()

    def message(self, channel: ChannelId, message: bytes) -> None:
        self._check_open(channel)
        self.messages[channel].append(message)
        self._change()

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        self.message(channel, b"".join(pieces))

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        return False

    def part(self, channel: ChannelId, pieces: tuple[bytes, ...], **options: object) -> None:
        raise AssertionError("nothing passes")

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        self._check_open(channel)
        self.sent_bytes[channel] += size_bytes
        self._change()

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        assert channel not in self.closes, f"channel {channel} closed twice"
        self.closes[channel] = cause
        self._change()

    async def wait_opened(self, channel: ChannelId) -> Opening:
        await self.wait_until(lambda: channel in self.opened_channels)
        return self.opened_channels[channel]

    async def wait_any_opened(self) -> ChannelId:
        """Returns the first channel that a client opened."""
        await self.wait_until(lambda: bool(self.outlets))
        return next(iter(self.outlets))

    async def wait_message(self, channel: ChannelId, n: int = 1) -> list[bytes]:
        """Returns all messages of the channel, as soon as there are `count`."""
        await self.wait_until(lambda: len(self.messages[channel]) >= n)
        return self.messages[channel]

    async def wait_sent(self, channel: ChannelId, size_bytes: int) -> None:
        await self.wait_until(lambda: self.sent_bytes[channel] >= size_bytes)

    async def wait_closed(self, channel: ChannelId) -> Cause:
        await self.wait_until(lambda: channel in self.closes)
        return self.closes[channel]

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Returns when a report to this port has made `is_so` true.

        Raises:
            TimeoutError: not within `PATIENCE_S`.
        """
        with anyio.fail_after(PATIENCE_S):
            while not is_true():
                await self._changed.wait()

    def _check_open(self, channel: ChannelId) -> None:
        assert channel in self.opened_channels, f"channel {channel} speaks before it is open"
        assert channel not in self.closes, f"channel {channel} speaks after its end"

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
