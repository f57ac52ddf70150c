"""The contract between a transport and its owner, which runs the engine.

A transport moves messages. It calls its `Port` for each event on a channel, and receives orders through the `Outlet`
that it registered for that channel. No method here awaits, blocks, or raises for what a peer did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from ...core.base.effects import Close, Forward, Pass, Send, SendEvents
from ...core.base.events import Cause, Connected, Opening, PostOpening
from ...core.base.ids import ChannelId
from ...core.base.storage import Append, Cease, Receive, Serve


class Outlet(Protocol):
    """The writing end of a channel, as the owner of the engine uses it."""

    def send(self, order: Send) -> None:
        """Queues one message. The transport calls `Port.sent` once its bytes have been written."""

    def close(self, order: Close) -> None:
        """Ends the channel once everything queued before has been written, or at once if the order `drops` it. Safe to
        call twice."""

    def pause(self) -> None:
        """Stops reading from the peer until `resume`."""

    def resume(self) -> None:
        """Reads from the peer again."""


class RequestOutlet(Outlet, Protocol):
    """The outlet of an HTTP request that another replica may have to answer."""

    def forward(self, order: Forward) -> None:
        """Passes the request on to another replica. The transport reports the end of the channel, as that of any other.
        If the replica is gone, it then reports the same opening, with `is_returned`, on a new channel."""


class ReplyOutlet(RequestOutlet, Protocol):
    """The outlet of an MCP request over HTTP."""

    def send_events(self, order: SendEvents) -> None:
        """Queues several messages, as `send` queues one."""

    def pass_on(self, order: Pass) -> None:
        """Queues a part of a message. The transport calls `Port.sent` for it as for a message."""


class FileOutlet(RequestOutlet, Protocol):
    """The outlet of an HTTP request outside the protocol: an upload or a download."""

    def receive(self, order: Receive) -> None:
        """Takes in the files of an upload, through `FileService.take_in`."""

    def append(self, order: Append) -> None:
        """Takes in more of a resumable upload, through `FileService.append`."""

    def cease(self, order: Cease) -> None:
        """Stops an `append`. Safe to call after it has ended."""

    def serve(self, order: Serve) -> None:
        """Sends a stored file, through `FileService.give_out`."""


class Port(Protocol):
    """The owner of the engine, as a transport calls it."""

    def open(self, opening: Opening, outlet: Outlet) -> ChannelId:
        """Reports that a client opened a channel. Orders for it may reach `outlet` before this returns."""

    def posted(self, opening: PostOpening, message: bytes, outlet: Outlet) -> ChannelId:
        """Reports a POST whose body has arrived in full: `open` and its one `message`."""

    def opened(self, channel: ChannelId, opening: Opening) -> None:
        """Reports that a channel the engine dialled is open."""

    def message(self, channel: ChannelId, message: bytes) -> None:
        """Reports one message, without its framing. It may be malformed: the engine validates it."""

    def arrived(self, channel: ChannelId, messages: Sequence[bytes]) -> None:
        """Reports one or more messages that arrived together, as `message` reports one. Orders that result from any of
        them are carried out after all are reported."""

    def pieces(self, channel: ChannelId, pieces: tuple[bytes, ...]) -> None:
        """Reports one large message in chunks that were not joined. The engine should avoid copying it."""

    def passes(self, channel: ChannelId, beginning: bytes, size_bytes: int) -> bool:
        """True if a message of `size_bytes` that starts with `beginning` is to be passed on in parts, each reported
        with `part` as it arrives."""

    def part(
        self,
        channel: ChannelId,
        pieces: tuple[bytes, ...],
        *,
        opening: Connected | None = None,
        size_bytes: int = 0,
        is_last: bool = False,
    ) -> None:
        """Reports a part of a message for which `passes` returned True. The first part carries the opening of its
        channel and the message's size. The last part also reports the orderly end of the channel."""

    def replied(self, channel: ChannelId, opening: Connected, message: bytes | None) -> None:
        """Reports a whole reply on a channel that the engine dialled: it opened, received one message or none, and
        ended in order."""

    def sent(self, channel: ChannelId, size_bytes: int) -> None:
        """Reports that `size_bytes` of messages, without framing, have been written to the peer."""

    def delivered(self, channel: ChannelId, size_bytes: int) -> None:
        """Reports `sent`, and that the channel ended in order."""

    def closed(self, channel: ChannelId, cause: Cause) -> None:
        """Reports that the channel has ended. Nothing is reported for it afterwards. Does nothing for a channel that
        has ended."""


class UploadRefused(Exception):
    """Raised for an upload that is refused: `status` for HTTP, `code` for programs, `detail` for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class FileService(Protocol):
    """The service that stores and reads files for the HTTP listener."""

    async def take_in(self, order: Receive, content_type: str, body: AsyncIterator[bytes]) -> bytes:
        """Stores the files of an upload as they arrive. Returns the JSON of an `UploadManifest`.

        Raises:
            UploadRefused: nothing of the upload is stored. Any other exception leaves nothing stored either.
        """

    async def append(self, order: Append, body: AsyncIterator[bytes], tell: Callable[[bytes], None]) -> None:
        """Stores further bytes of a draft (a resumable upload) as they arrive.

        Args:
            tell: called with the JSON of an `Appended`, at intervals and once more at the end, before this returns,
                raises or is cancelled.

        Raises:
            Exception: any that `body` raises.
        """

    def give_out(self, order: Serve, start: int, stop: int) -> AsyncIterator[bytes | bytearray]:
        """Returns the bytes `start:stop` of the blob, in chunks of at most 512 KiB."""


class BodySource(Protocol):
    """A request body that is read piece by piece."""

    async def receive_body(self) -> bytes | None:
        """Returns the next bytes of a request's body; None at its end.

        Raises:
            Gone, Silent, h11.RemoteProtocolError: the body will not be completed.
        """
