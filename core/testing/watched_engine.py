"""An engine that watches its driver: each breach of the driver's contract is reported in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ..base.effects import Close, Dial, Effect, Send
from ..base.errors import LocalProtocolError
from ..base.ids import ChannelId
from ..bulk import BulkEngine
from ..trace import INPUTS as PARAMETERS
from ..trace import Input
from .contract import INPUTS, OPENINGS, TARGETS, Kind, sent_bytes

GRACE_S: Final = 30.0


class Orders(list[Effect]):
    """The effects of one input, which know how far the driver has taken them.

    A list that the driver changes is its own queue: `pop`, `append` and the like take it.
    """

    def __init__(self, effects: Iterable[Effect], contract: Contract, name: str) -> None:
        super().__init__(effects)
        self._contract = contract
        self._name = name
        self._is_taken = not self

    def take(self) -> None:
        self._is_taken = True

    def __iter__(self) -> Iterator[Effect]:
        self._contract.begin_loop(self._name)
        try:
            yield from super().__iter__()
            self._is_taken = True
        finally:
            self._contract.end_loop()

    def __add__(self, other: Any) -> Any:
        return self._joined(self, other)

    def __radd__(self, other: Any) -> Any:
        return self._joined(other, self)

    def _joined(self, first: list[Effect], second: list[Effect]) -> Orders:
        for each in (first, second):
            if isinstance(each, Orders):
                each.take()
        return Orders([*list.__iter__(first), *list.__iter__(second)], self._contract, self._name)

    def __del__(self) -> None:
        if not self._is_taken:
            self._contract.breach(f"the orders of `{self._name}` were dropped, or not all of them were taken")


def _taking(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def take(self: Orders, *arguments: Any) -> Any:
        self.take()
        for each in arguments:
            if isinstance(each, Orders):
                each.take()
        return method(self, *arguments)

    return take


for _name in ("pop", "append", "extend", "insert", "clear", "copy", "__iadd__", "__getitem__", "__delitem__"):
    setattr(Orders, _name, _taking(_name))


class Watched:
    """A channel as the driver's contract sees it.

    Attributes:
        closed_at: time at which its end was ordered, by a `Close` or by the last message.
    """

    def __init__(self, kind: Kind | None) -> None:
        self.kind = kind
        self.is_open = False
        self.is_gone = False
        self.unsent_bytes = 0
        self.closed_at: float | None = None
        self.is_late = False

    def receive_open(self, kind: Kind | None) -> None:
        self.is_open = True
        self.kind = kind or self.kind

    def receive_close(self) -> None:
        self.is_open = False
        self.is_gone = True

    def receive_sent(self, size_bytes: int) -> None:
        self.unsent_bytes -= size_bytes

    def receive_late(self) -> None:
        self.is_late = True

    def receive_order(self, order: Effect, now: float) -> None:
        self.unsent_bytes += sent_bytes(order)
        if isinstance(order, Close) or (isinstance(order, Send) and order.is_last):
            self.closed_at = now if self.closed_at is None else self.closed_at

    def __str__(self) -> str:
        return "a channel that is not open" if self.kind is None else f"a {self.kind.value}"


class Contract:
    """The contract of a driver, and how the driver has kept it so far.

    Args:
        report: takes each breach.
        grace_s: time that the driver may take for the end of a channel, and for a deadline.

    Attributes:
        breaches: all of them, in order.
    """

    def __init__(self, report: Callable[[str], object], grace_s: float) -> None:
        self.breaches: list[str] = []
        self._report = report
        self._grace_s = grace_s
        self._loops: list[str] = []
        self._channels: dict[int, Watched] = {}
        self._tickets: dict[int, str] = {}
        self._late_at: float | None = None

    def breach(self, text: str) -> None:
        """Records a breach. The same words are recorded once."""
        if text not in self.breaches:
            self.breaches.append(text)
            self._report(text)

    def begin_loop(self, name: str) -> None:
        """Handles the start of a loop over the orders of an input."""
        self._loops.append(name)

    def end_loop(self) -> None:
        """Handles its end."""
        self._loops.pop()

    def number(self, channel: ChannelId) -> None:
        """Handles the number of a channel of a client."""
        self._channels[channel] = Watched(None)

    def judge(self, name: str, fields: dict[str, Any]) -> None:
        """Judges an input before the engine sees it."""
        if self._loops:
            loop = self._loops[-1]
            self.breach(f"`{name}` was called within the loop over the orders of `{loop}`: queue all of them first")
        if "channel" in fields:
            self._judge_channel(name, int(fields["channel"]), fields)
        if "ticket" in fields:
            before = self._tickets.get(fields["ticket"])
            if before != "open":
                seen = "was never ordered" if before is None else "has its answer"
                self.breach(f"`{name}` answers ticket {fields['ticket']}, which {seen}")
            self._tickets[fields["ticket"]] = "answered"

    def _judge_channel(self, name: str, number: int, fields: dict[str, Any]) -> None:
        watched = self._channels.get(number)
        if watched is None:
            self.breach(f"`{name}` names channel {number}, which neither `new_channel` nor a `Dial` has numbered")
            return
        opening, cause = fields.get("opening"), fields.get("cause")
        if opening is not None:
            watched.receive_open(OPENINGS.get(type(opening)))
        inputs = {
            "receive_sent": bool(fields.get("size_bytes") and name != "receive_part"),
            "receive_message": any(fields.get(field) is not None for field in ("message", "messages", "pieces")),
        }
        for input in (input for input, is_told in inputs.items() if is_told and not watched.is_gone):
            if not watched.is_open or watched.kind is None:
                self.breach(f"`{name}` comes before `receive_open` of its channel")
            elif input not in INPUTS[watched.kind]:
                self.breach(f"`{input}` is not for {watched}")
        if inputs["receive_sent"] and not watched.is_gone:
            if fields["size_bytes"] > watched.unsent_bytes:
                seen = f"{fields['size_bytes']} bytes of {watched.unsent_bytes} that are not reported yet"
                self.breach(f"`receive_sent` reports more than was ordered for {watched}: {seen}")
            watched.receive_sent(fields["size_bytes"])
        if cause is not None:
            if watched.is_gone:
                self.breach(f"`receive_close` comes twice for {watched}")
            watched.receive_close()

    def take_orders(self, name: str, effects: list[Effect], now: float) -> Orders:
        """Notes what was ordered."""
        for order in effects:
            if isinstance(order, Dial):
                self._channels[order.channel] = Watched(TARGETS[type(order.target)])
            if (number := getattr(order, "channel", None)) in self._channels:
                self._channels[number].receive_order(order, now)
            if (ticket := getattr(order, "ticket", None)) is not None:
                self._tickets[ticket] = "open"
        return Orders(effects, self, name)

    def judge_time(self, name: str, due_at: float | None, now: float) -> None:
        """Judges whether the driver has kept its time limits: `due_at` is the engine's deadline before this input."""
        if due_at is not None and due_at + self._grace_s < now and name != "handle_timeout" and due_at != self._late_at:
            self._late_at = due_at
            self.breach(f"`handle_timeout` is overdue by more than {self._grace_s:g} s")
        for watched in self._channels.values():
            is_late = watched.closed_at is not None and watched.closed_at + self._grace_s < now
            if is_late and not watched.is_gone and not watched.is_late:
                watched.receive_late()
                self.breach(f"{watched} is not closed {self._grace_s:g} s after its end was ordered")

    def finish(self) -> list[str]:
        """Judges what the driver still owes at its end. Returns all breaches."""
        for watched in self._channels.values():
            if watched.is_gone or (watched.kind is None and not watched.is_open):
                continue  # a client's channel that was numbered and never opened
            if not watched.is_open:
                self.breach(f"the `Dial` of {watched} was never answered")
            else:
                self.breach(f"{watched} was never reported closed")
        for ticket, state in self._tickets.items():
            if state == "open":
                self.breach(f"ticket {ticket} was never answered")
        return self.breaches


class WatchedEngine(BulkEngine):
    """An `Engine` that reports each breach of the driver's contract. It acts as any engine does.

    Args:
        report: takes each breach in words.
        grace_s: time that the driver may take for the end of a channel, and for a deadline.
        lock: a `threading.RLock` with which inputs of two threads at once are seen; None: they are not.

    Call `finish` where the driver has ended.
    """

    def __init__(
        self,
        *arguments: Any,
        report: Callable[[str], object],
        grace_s: float = GRACE_S,
        lock: Any = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.contract: Final = Contract(report, grace_s)
        self._lock = lock
        self._is_within_input = False

    def new_channel(self) -> ChannelId:
        channel = super().new_channel()
        self.contract.number(channel)
        return channel

    def finish(self) -> list[str]:
        """Returns all breaches, with what the driver still owes at its end."""
        return self.contract.finish()


def _watched(name: str, parameters: Input) -> Callable[..., list[Effect]]:
    """The input of `BulkEngine` of that name, judged."""
    method: Callable[..., list[Effect]] = getattr(BulkEngine, name)

    def watch(self: WatchedEngine, *given: Any, **named: Any) -> list[Effect]:
        contract, lock = self.contract, self._lock
        if lock is not None and not lock.acquire(blocking=False):
            contract.breach(f"`{name}` was called while another thread was within an input")
            lock.acquire()
        try:
            if self._is_within_input:  # an input may be made of others
                return method(self, *given, **named)
            fields = dict(zip(parameters.given, given, strict=False)) | named
            now = fields["now"]
            due = self.next_timeout()
            contract.judge_time(name, None if due is None else due.at, now)
            contract.judge(name, fields)
            self._is_within_input = True
            try:
                return contract.take_orders(name, method(self, *given, **named), now)
            except LocalProtocolError as error:
                contract.breach(f"`{name}` raised: {error}")
                raise
            finally:
                self._is_within_input = False
        finally:
            if lock is not None:
                lock.release()

    return watch


for _name, _parameters in PARAMETERS.items():
    setattr(WatchedEngine, _name, _watched(_name, _parameters))
