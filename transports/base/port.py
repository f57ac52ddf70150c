"""What a transport may ask of its owner, and what it must offer in return.

A transport moves messages. It calls its `Port` for each thing that happens on a channel, and gets its orders through
the `Outlet` it registered for that channel. No method here awaits, blocks or raises for what a peer did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from ...core.base.effects import (
    Append,
    Cause,
    Cease,
    Close,
    Connected,
    Opening,
    Pass,
    PostOpening,
    Receive,
    Send,
    SendEvents,
    Serve,
)
from ...core.base.ids import ChannelId


class Outlet(Protocol):
    """A channel's writing end, as the owner of the engine sees it."""

    def send(self, order: Send) -> None:
        """Queue one message. The transport reports `Port.sent` once its bytes have left."""

    def close(self, order: Close) -> None:
        """End the channel once what was queued before has left. Safe to call twice."""

    def pause(self) -> None:
        """Stop reading from the peer until `resume`."""

    def resume(self) -> None: ...


class ReplyOutlet(Outlet, Protocol):
    """An HTTP request of the protocol."""

    def send_events(self, order: SendEvents) -> None:
        """Queue several messages, as `send` does one."""

    def pass_on(self, order: Pass) -> None:
        """Queue a part of a message. The transport reports `Port.sent` for it as for a message."""


class FileOutlet(Outlet, Protocol):
    """An HTTP request outside the protocol: an upload or a download."""

    def receive(self, order: Receive) -> None: ...

    def append(self, order: Append) -> None: ...

    def cease(self, order: Cease) -> None:
        """Stop what `append` began. Safe to call when it is over."""

    def serve(self, order: Serve) -> None: ...


class Port(Protocol):
    """The owner of the engine, as a transport sees it."""

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        """A downstream channel opened. Orders for it may reach `outlet` before this returns."""

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        """`open`, and the one message of a POST that arrived whole."""

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        """A channel that the engine dialled is open."""

    def message(self, channel: ChannelId, message: bytes) -> None:
        """One message arrived, without its framing. It may be malformed: that is the engine's to judge."""

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        """`message`, of several that arrived at once, at least one. What is ordered for any of them is carried out
        when all are told."""

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        """`message`, of a large one that was not joined: the less is done about it, the better."""

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """Whether a message of so many bytes that begins so is to be given to `part` as it comes."""

    def part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        is_last: bool = False,
    ) -> None:
        """A part of a message that `passes`: the first with the opening of its channel and the message's size, the last
        with the channel's orderly end."""

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        """A channel that the engine dialled opened, said one message or none, and ended as it should."""

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        """So many bytes of messages (framing not counted) have left for the peer."""

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        """`sent`, and the channel ended as it should."""

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        """The channel is gone. Nothing more is said of it. Calling it for a channel already gone does nothing."""


class UploadRefused(Exception):
    """An upload that is not taken: `status` for HTTP, `code` for programs, `detail` for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class FileService(Protocol):
    """Who stores and reads files for the HTTP listener."""

    async def take_in(self, order: Receive, content_type: str, body: AsyncIterator[bytes]) -> bytes:
        """Store the files of an upload as they arrive. Returns the JSON of an `UploadManifest`.

        Raises:
            UploadRefused: nothing of it is stored. Whatever else is raised leaves nothing behind either.
        """

    async def append(self, order: Append, body: AsyncIterator[bytes], tell: Callable[[bytes], None]) -> None:
        """Store more of a draft as it arrives.

        Args:
            tell: called with the JSON of an `Appended`: every so often, and once for all when it is over, in whatever
                way, before this returns, raises or is cancelled.

        Raises:
            Whatever `body` does.
        """

    def give_out(self, order: Serve, start: int, stop: int) -> AsyncIterator[bytes | bytearray]:
        """The bytes `start:stop` of the blob, in chunks of at most 512 KiB."""


class BodySource(Protocol):
    async def receive_body(self) -> bytes | None:
        """The next bytes of an upload's body; None at its end.

        Raises:
            Gone, Silent, h11.RemoteProtocolError: there will be no end.
        """
