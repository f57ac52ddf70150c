"""A network whose engine can die and start anew, with a disk, and with files over plain HTTP."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from isthmus.core.base.effects import Close, Dial, Effect, Send
from isthmus.core.base.events import Cause, End, Opening
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.plan import Plan
from isthmus.core.base.storage import (
    Append,
    Appended,
    Cease,
    Halt,
    Receive,
    Serve,
    StorageAnswer,
    StoredFile,
    UploadManifest,
)
from isthmus.core.bulk import BulkEngine
from simulated_disk import Left, StormyDisk
from simulated_network import Channel, Network, Wrong

RESTART_S: Final = 3.0
"""The longest time between the end of one process and the start of the next."""
DYING: Final = ("restarts", "stops", "steps")
"""Faults of the proxy's process. restarts: it dies at any effect of any input, and starts again. stops: it is stopped
in order, and starts again. steps: the wall clock jumps meanwhile."""

DRAIN_S: Final = 5.0
ZERO_UNIX: Final = 1e9
STORING_S: Final = 30.0
"""The time that a process that ends waits for its disk."""


class Sender(Protocol):
    """A client that sends files.

    Attributes:
        files: names and contents, of a form or of a whole body. For another part of a resumable upload, the rest that
            the client has.
        is_breaking: True if the client hangs up in the middle.
    """

    name: str
    files: list[tuple[str, bytes]]
    is_breaking: bool


class LastingNetwork(Network):
    """A network with a storage behind the engine.

    Attributes:
        runs: the number of engines before this one.
        evicted: the number of files that were evicted for others.
    """

    def __init__(
        self,
        rng: random.Random,
        faults: frozenset[str],
        dialled: Callable[[Channel, Dial], None],
    ) -> None:
        super().__init__(rng, faults, self._reach)
        self._onward = dialled
        self.unix_at_zero = self.latest_unix_at_zero = ZERO_UNIX
        self.storage = self.disk = StormyDisk(self)
        self._fate = self.rng_of("fate")
        self._effects_left = 0
        self._evicted = 0
        self._refused: dict[Channel, int] = {}
        self.runs = 0
        self._is_down = self._is_doomed = self._is_stopping = False
        self._appending: dict[ChannelId, tuple[Append, list[bytes]]] = {}

    @property
    def now_unix(self) -> float:
        return self.unix_at_zero + self.now

    @property
    def evicted(self) -> int:
        return self._evicted + sum(ends.count for ends in self.engine.file_ends() if ends.why == "evicted")

    @property
    def is_tried(self) -> bool:
        """True if the process is about to end, so that it may refuse anything."""
        return self._is_stopping or self._is_down or self._is_doomed

    # --- The life of the process ------------------------------------------------------------------------------------

    def begin(self, make: Callable[[float, Left], BulkEngine], restarted: Callable[[], None]) -> None:
        """Starts the first engine.

        Args:
            make: builds an engine with the records that earlier ones left.
            restarted: called after each start.
        """
        self._make, self.restarted = make, restarted
        self.start()

    def start(self) -> None:
        self._is_down = False
        self.engine = self._make(self.unix_at_zero, self.disk.start())
        self.restarted()

    def strike(self, number: int) -> None:
        """Draws a fault of the process, about once a second: it is stopped, or dies in the middle of its next
        effects."""
        rng = self.rng_of(f"r{number}")
        if self.strikes("stops", 0.03, rng) and not self.is_tried:
            self.stop()
        if self.strikes("restarts", 0.05, rng) and not self.is_tried:
            self._effects_left = rng.randint(1, 60)

    def stop(self) -> None:
        """Stops the process in order: open requests may finish."""
        self._is_stopping = True
        run = self.runs
        self._take_effects("receive_drain", self.engine.receive_drain(self.now))
        self.later(DRAIN_S, self._let_go, run)

    def _let_go(self, run: int) -> None:
        if run == self.runs and not self._is_down:
            self._take_effects("receive_stop", self.engine.receive_stop(self.now))
            self.later(1.0, self._end_in_order, run, self.now + STORING_S)

    def _end_in_order(self, run: int, latest: float) -> None:
        if run != self.runs or self._is_down:
            return
        if self.disk.is_busy and self.now < latest:
            self.later(1.0, self._end_in_order, run, latest)
        else:
            self.crash()

    def crash(self) -> None:
        """Ends the process. Every channel is lost, with the messages in flight. Clients find out in their own time,
        servers at once."""
        self.counts["crash"] += 1
        self._evicted = self.evicted
        self._is_doomed = self._is_stopping = False
        self._effects_left = 0
        self._is_down = True
        self.runs += 1
        self.disk.crash()
        self._appending.clear()
        channels, self.channels = list(self.channels.values()), {}
        self.engine = BulkEngine(
            Plan(servers=()), entropy=self._fate.randbytes, unix_at_zero=self.unix_at_zero, has_storage=True
        )
        for channel in channels:
            was_open, channel.is_cut, channel.is_over = channel.is_open, True, True
            if channel.is_dialled:
                channel.peer.receive_end(channel, None)
            elif was_open:
                self.later(self._fate.expovariate(1.0), channel.peer.receive_end, channel, None)
        if self.strikes("steps", 0.5, self._fate):
            self.unix_at_zero += self._fate.choice((-3600.0, -30.0, -1.0, 1.0, 20.0, 3600.0))
            self.latest_unix_at_zero = max(self.latest_unix_at_zero, self.unix_at_zero)
        self.later(self._fate.uniform(0.1, RESTART_S), self.start)

    # --- While there is no process ----------------------------------------------------------------------------------

    @property
    def is_down(self) -> bool:
        """True between the end of one process and the start of the next."""
        return self._is_down

    def open(self, peer: Any, opening: Opening, body: bytes | None = None) -> Channel:
        return self._refuse_connection(peer) if self._is_down else super().open(peer, opening, body)

    def _refuse_connection(self, peer: Any) -> Channel:
        channel = Channel(ChannelId(-1), peer)
        channel.is_cut = channel.is_over = True
        self.later(self.delay(channel), peer.receive_end, channel, None)
        return channel

    def _reach(self, channel: Channel, dial: Dial) -> None:
        if not channel.is_over:
            self._onward(channel, dial)

    # --- The status of a reply --------------------------------------------------------------------------------------

    def _deliver(self, channel: Channel, *sends: Send) -> None:
        if sends[-1].is_last and sends[-1].status >= 400:
            self._refused[channel] = sends[-1].status
        super()._deliver(channel, *sends)
        self._refused.pop(channel, None)

    def _finish(self, channel: Channel, close: Close | None) -> None:
        status = self._refused.get(channel)
        super()._finish(channel, close if status is None else Close(channel.number, status=status))

    # --- Orders -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        if self._is_doomed or self._is_down:
            return
        self._effects_left -= 1
        if not self._effects_left:
            self._is_doomed = True
            self.later(0.0, self.crash)
        elif isinstance(effect, Receive | Append | Serve):
            channel = self.channels.get(effect.channel)
            if channel is None:
                raise Wrong(f"ordered for a channel that is over: {effect}")
            self._forbid_ending(channel, effect)
            if isinstance(effect, Receive):
                self.later(self.delay(channel), self._receive, channel, effect)
            elif isinstance(effect, Append):
                self._begin_appending(channel, effect)
            else:
                channel.is_ending = True
                self.later(self.delay(channel), self._serve, channel, effect)
        elif isinstance(effect, Cease):
            self.later(0.0, self._cease, effect)
        else:
            super()._carry_out(effect)

    def answer(self, ticket: Ticket, answer: StorageAnswer) -> None:
        if not self._is_doomed:
            self._take_effects(
                f"receive_answer {type(answer).__name__}", self.engine.receive_answer(ticket, answer, self.now)
            )

    # --- Files over plain HTTP --------------------------------------------------------------------------------------

    def _receive(self, channel: Channel, order: Receive) -> None:
        """Takes the body of an upload, whole, refused or broken off. Either all of its files are stored or none."""
        if channel.is_over or channel.is_cut:
            return
        sender: Sender = channel.peer  # type: ignore[assignment]
        sizes = [len(data) for _, data in sender.files]
        if sender.is_breaking:
            self.end(channel, Cause(End.GONE))
        elif (
            len(sizes) > len(order.blobs)
            or max(sizes) > order.file_size_max_bytes
            or sum(sizes) > order.total_size_max_bytes
        ):
            self._refuse(channel, 413)
        elif self.disk.is_now("full") or self.disk.is_now("broken"):
            self._refuse(channel, 507)
        else:
            for blob, (_, data) in zip(order.blobs, sender.files, strict=False):
                self.disk.blobs[blob] = data
            files = [
                StoredFile(filename=name, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
                for name, data in sender.files
            ]
            self._give_file_message(channel, msgspec.json.encode(UploadManifest(tuple(files))))

    def _refuse(self, channel: Channel, status: int) -> None:
        """Answers a client as the driver does, without the engine."""
        channel.is_ending = True
        self._finish(channel, Close(channel.number, status=status))

    def _begin_appending(self, channel: Channel, order: Append) -> None:
        sender: Sender = channel.peer  # type: ignore[assignment]
        ((_, data),) = sender.files
        cut = channel.rng.randint(0, len(data))
        self._appending[channel.number] = order, [data[:cut], data[cut:]]
        if order.offset == 0:
            self.disk.partial.setdefault(order.blob, b"")
        self.later(self.delay(channel), self._append, channel)

    def _append(self, channel: Channel) -> None:
        """Appends another piece to a resumable upload."""
        order, pieces = self._appending.get(channel.number, (None, []))
        if order is None or channel.is_over or channel.is_cut:
            return
        disk, sender = self.disk, channel.peer
        data = disk.partial.get(order.blob)
        if data is None or disk.is_now("broken"):
            self._report(channel, Halt.FAILED)
        elif disk.is_now("full"):
            self._report(channel, Halt.FULL)
        elif pieces:
            data = disk.partial[order.blob] = data + pieces.pop(0)
            if len(data) > order.size_bytes:
                raise Wrong(f"a draft of {order.size_bytes} bytes was given {len(data)}")
            if pieces and channel.rng.random() < 0.3:
                self._give_file_message(channel, msgspec.json.encode(Appended(len(data), is_over=False)))
            self.later(self.delay(channel), self._append, channel)
        elif sender.is_breaking:  # type: ignore[attr-defined]
            self._report(channel, Halt.BROKEN)
            self.end(channel, Cause(End.GONE))
        else:
            self._report(channel, Halt.NONE)

    def _report(self, channel: Channel, halt: Halt) -> None:
        """Reports the result of an `Append`."""
        order, _ = self._appending.pop(channel.number)
        data, sha256 = self.disk.partial.get(order.blob, b""), ""
        if halt is Halt.NONE and len(data) == order.size_bytes:
            self.disk.blobs[order.blob] = self.disk.partial.pop(order.blob)
            sha256 = hashlib.sha256(data).hexdigest()
        self._give_file_message(channel, msgspec.json.encode(Appended(len(data), sha256=sha256, halt=halt)))

    def _cease(self, order: Cease) -> None:
        channel = self.channels.get(order.channel)
        if channel is not None and channel.number in self._appending:
            self._report(channel, Halt.CEASED)

    def _report_end(self, channel: Channel, cause: Cause) -> None:
        if channel.number in self._appending and not channel.is_over and self.channels.get(channel.number) is channel:
            if len(self._appending[channel.number][1]) == 2:  # the driver had not begun with the order
                del self._appending[channel.number]
            else:
                self._report(channel, Halt.BROKEN)
        super()._report_end(channel, cause)

    def _give_file_message(self, channel: Channel, message: bytes) -> None:
        self.messages += 1
        effects = self.engine.receive_message(channel.number, message, self.now)
        self._take_effects("receive_message of files", effects, channel, message)

    def _serve(self, channel: Channel, order: Serve) -> None:
        if channel.is_over or channel.is_cut:
            return
        data = self.disk.blobs.get(order.blob)
        if data is None or self.disk.is_now("broken"):
            self._finish(channel, Close(channel.number, status=500))
        else:
            channel.peer.receive_file(data)  # type: ignore[attr-defined]
            self._finish(channel, None)
