"""Worlds whose engine gets its inputs in all the shapes that the product's drivers use, with answers of all sizes.

Things that arrive together are one input (`receive_at_once`). Large lines come in pieces. Large documents come part by
part, at the pace of their clients (`receive_part`). The sizes that count as large are lowered in these worlds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from driven_wires import CRUMB_BYTES, FILLERS, LARGE_BYTES, PARTS_MIN_BYTES, DrivenLines, DrivenResponse
from isthmus.core.base.effects import Close, Delete, Dial, Effect, Join, Listen, Pass, Post, Send
from isthmus.core.base.events import Cause, End, PostOpening
from isthmus.core.base.plan import Kind, Offer, ServerPlan, TaskRules
from isthmus.core.jsonrpc import envelope, envelope_edges
from isthmus.core.jsonrpc.envelope_edges import EDGE_BYTES
from isthmus.core.routing import passthrough
from isthmus.core.wire import chunks, ndjson
from isthmus.core.wire.http import response
from isthmus.core.wire.http.response import ENDED_ORDERLY
from simulated_network import Channel, Wrong, filler_of
from simulated_servers import HANDSHAKES, Server
from simulated_wires import Item, ReplyMessage, SocketWire, cut
from wired import WiredWorld
from wired_network import WiredNetwork

OWN_TASKS: Final = TaskRules(offer=Offer.OWN)
CUT_OFF: Final = Cause(End.BROKEN, "the server's answer was cut off")


class DrivenNetwork(WiredNetwork):
    """The network of a driven world."""

    def __init__(self, rng: random.Random, faults: frozenset[str], dialled: Callable[[Channel, Dial], None]) -> None:
        super().__init__(rng, faults, dialled)
        # inputs that are given to the engine together with the end of their channel
        self._with_end: dict[Channel, dict[str, Any]] = {}
        self._passed: dict[Channel, list[bytes]] = {}  # replies that are not over, in the parts that were passed on
        self._shy: dict[Channel, Item] = {}  # heads of responses that the server has not sent yet

    def crash(self) -> None:
        for table in (self._with_end, self._passed, self._shy):
            table.clear()  # type: ignore[attr-defined]
        super().crash()

    def filler(self, rng: random.Random) -> str:
        return filler_of(rng.choice(FILLERS))

    # --- To the engine ----------------------------------------------------------------------------------------------

    def _send_in(self, channel: Channel, item: Item) -> None:
        """Sends an item to the proxy. Some servers send the head of a response only when they know whether more than
        the answer follows."""
        if channel not in self._responses:
            super()._send_in(channel, item)
        elif item[0] == "open" and channel.rng.random() < 0.7:
            self._shy[channel] = item
        else:
            if (head := self._shy.pop(channel, None)) is not None:
                super()._send_in(channel, head)
            super()._send_in(channel, item)

    def _cut(self, data: bytes, rng: random.Random) -> Iterator[bytes]:
        """Cuts the bytes. Large data is cut within its envelope more often than elsewhere."""
        at = data.find(b"\r\n\r\n") + 4 + rng.randint(0, EDGE_BYTES)
        if len(data) > PARTS_MIN_BYTES and rng.random() < 0.3:
            yield from (part for part in (data[:at], data[at:]) if part)
        else:
            yield from cut(data, rng)

    def _arrive(self, channel: Channel, item: Item) -> None:
        kind = item[0]
        is_together = kind in ("pieces", "replied", "part") or (
            kind == "open" and isinstance(item[1], PostOpening) and item[2] is not None
        )
        if not is_together or channel.is_paused or channel.is_over or channel.is_cut or channel.is_mute_in:
            super()._arrive(channel, item)
        elif channel.is_ending:
            if kind == "replied" or (kind == "part" and item[4]):
                self._report_end(channel, Cause(End.DONE))
        else:
            self._give_together(channel, *item)

    def _give_together(self, channel: Channel, kind: str, *given: Any) -> None:
        engine, number, now = self.engine, channel.number, self.now
        self.messages += kind != "part" or given[3]
        if kind == "open":
            effects = engine.receive_at_once(number, now, opening=given[0], message=given[1])
            self._take_effects(type(given[0]).__name__ + " at once", effects, channel, given[1])
        elif kind == "pieces":
            self._take_effects(
                "receive_pieces", engine.receive_pieces(number, given[0], now), channel, b"|".join(given[0])
            )
        elif kind == "replied":
            self._with_end[channel] = {"opening": given[0], "message": given[1]}
            self._report_end(channel, ENDED_ORDERLY)
        else:
            part, opening, size_bytes, is_last = given
            if is_last:
                self._with_end[channel] = {"part": part}
                self._report_end(channel, ENDED_ORDERLY)
            else:
                effects = engine.receive_part(number, part, now, opening=opening, size_bytes=size_bytes)
                self._take_effects("receive_part", effects, channel, b"|".join(part))
                if self.strikes("cuts", 0.3 if size_bytes else 0.02, channel.rng):
                    self._part(channel)  # the server has sent all, and not all arrives

    def _give_end(self, channel: Channel, cause: Cause) -> None:
        together = self._with_end.pop(channel, None)
        self._passed.pop(channel, None)
        self._shy.pop(channel, None)
        if together is None:
            super()._give_end(channel, cause)
        elif "part" in together:
            part = together["part"]
            effects = self.engine.receive_part(channel.number, part, self.now, cause=cause)
            self._take_effects("receive_part and end", effects, channel, b"|".join(part))
        else:
            effects = self.engine.receive_at_once(channel.number, self.now, cause=cause, **together)
            self._take_effects("end at once with " + " ".join(together), effects, channel, together.get("message", b""))

    def _report_sent(self, channel: Channel, size_bytes: int, *, is_last: bool) -> None:
        if is_last and channel in self._requests:
            self._with_end[channel] = {"size_bytes": size_bytes}
        else:
            super()._report_sent(channel, size_bytes, is_last=is_last)

    def _response(self, channel: Channel, target: Post | Listen | Delete) -> DrivenResponse:
        def passes(beginning: bytes, size_bytes: int) -> bool:
            return not channel.is_ending and self.engine.passes(channel.number, beginning, size_bytes)

        return DrivenResponse(target, channel.rng, passes)

    def _stream(self, channel: Channel, dial: Dial) -> DrivenLines | SocketWire:
        return SocketWire(is_client=True) if isinstance(dial.target, Join) else DrivenLines(channel.rng)

    # --- From the engine --------------------------------------------------------------------------------------------

    def _pass(self, order: Pass) -> None:
        channel = self.channels.get(order.channel)
        if channel is None:
            raise Wrong(f"ordered for a channel that is over: {order}")
        if order.size_bytes:
            super()._forbid_ending(channel, order)
            channel.is_ending = True
            self._passed[channel] = []
        channel.last_out_at = max(channel.last_out_at, self.now + self.delay(channel))
        self.later(channel.last_out_at - self.now, self._deliver_part, channel, order)

    def _forbid_ending(self, channel: Channel, effect: Effect) -> None:
        # a reply that is passed on in parts may be cut off
        if not (isinstance(effect, Close) and channel in self._passed):
            super()._forbid_ending(channel, effect)

    def _deliver_part(self, channel: Channel, order: Pass) -> None:
        parts = self._passed.get(channel)
        if parts is None or channel.is_over or channel.is_cut or channel.is_mute_out:
            return
        self.counts["part"] += 1
        wire, size_bytes = self._requests[channel], sum(map(len, order.pieces))
        parts += order.pieces
        found: list[ReplyMessage] = []
        for piece in cut(wire.pass_on(order), channel.rng):
            found += wire.read(piece)
        if not wire.ended_with:
            if found:
                raise Wrong(f"a part was read as {found}")
            self._report_sent(channel, size_bytes, is_last=False)
            return
        message = b"".join(parts)
        del self._passed[channel]
        if [one.message for one in found] != [message]:
            raise Wrong(f"{parts} were read as {found}")
        self.messages += 1
        if not channel.is_left:
            channel.peer.receive(channel, Send(channel.number, message, is_last=True))
        if not channel.is_over:
            self._report_sent(channel, size_bytes, is_last=True)
            channel.status = 200
            self._finish(channel, None)

    def _finish(self, channel: Channel, close: Close | None) -> None:
        if close is None or self._passed.pop(channel, None) is None:
            super()._finish(channel, close)
        elif not (channel.is_over or channel.is_cut):
            self.counts["cut off"] += 1
            was_left, channel.is_left = channel.is_left, True
            self._report_end(channel, CUT_OFF)
            if not was_left:
                channel.peer.receive_end(channel, None)


class DrivenWorld(WiredWorld):
    """A world of the kind that the module describes."""

    network: DrivenNetwork
    network_kind = DrivenNetwork

    def _server(self, number: int) -> Server:
        """Draws a server. Most are of the kind whose answers the proxy need not parse."""
        if self.network.rng_of(f"kind of s{number}").random() < 0.3:
            return super()._server(number)
        server = Server(self.network, ServerPlan(id=f"s{number}", kind=Kind.HTTP, tasks=OWN_TASKS), is_modern=False)
        server.revision = HANDSHAKES[-1]  # the newest; it takes each one before it too, as its clients like
        return server

    def run(self) -> None:
        with large_is_small():
            super().run()


@contextmanager
def large_is_small() -> Iterator[None]:
    """Lowers the sizes that count as large until the block ends."""
    with (
        patch.object(envelope, "LARGE_BYTES", LARGE_BYTES),
        patch.object(envelope_edges, "PARTS_MIN_BYTES", PARTS_MIN_BYTES),
        patch.object(passthrough, "PARTS_MIN_BYTES", PARTS_MIN_BYTES),
        patch.object(response, "PARTS_MIN_BYTES", PARTS_MIN_BYTES),
        patch.object(ndjson, "SMALL_SIZE_MAX_BYTES", CRUMB_BYTES),
        patch.object(chunks, "SMALL_SIZE_BYTES", CRUMB_BYTES),
    ):
        yield
