"""Subscriptions of 2026-07-28: acknowledged first, then what was asked for, each message with the subscription's id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .book import Book
from .methods import V5
from .observations import Role, Transport
from .seen import SUBSCRIPTION, Ask, Breach, Frame, JsonObject, Kind, Memory, State, key_of, shown
from .watch import Watch, breach

ACK: Final = "notifications/subscriptions/acknowledged"
FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class Subscription(msgspec.Struct, eq=False):
    """One `subscriptions/listen`. `acknowledged` is None until it was."""

    ask: Ask
    acknowledged: JsonObject | None = None
    seen: list[int] = []


class Listens(Watch):
    """Every subscription, by its id."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self._by_ask: Memory[Ask, Subscription] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Breach]:
        if frame.revision != V5 or frame.sender is Role.CLIENT:
            return
        if frame.kind is Kind.NOTIFICATION:
            if frame.method == ACK or frame.method in FLAGS or SUBSCRIPTION in frame.meta or frame.method in _NAMED:
                yield from self._notification(frame)
        elif frame.kind is Kind.RESULT and frame.ask is not None and frame.ask.method == "subscriptions/listen":
            if key_of(frame.meta.get(SUBSCRIPTION)) != frame.ask.id:
                text = f"got the subscription id {shown(frame.meta.get(SUBSCRIPTION))}, expected {shown(frame.ask.id)}"
                yield breach(frame, "subscription-id", text, frame.ask.index)

    def _notification(self, frame: Frame) -> Iterator[Breach]:
        if SUBSCRIPTION not in frame.meta:
            yield breach(frame, "subscription-id", f"got {frame.method} without a subscription id")
            return
        id = key_of(frame.meta[SUBSCRIPTION])
        ask = None if id is None else self._find(frame, id)
        if ask is None or ask.method != "subscriptions/listen":
            if not self.book.asks[Role.CLIENT].has_forgotten:
                text = f"got the subscription id {shown(frame.meta[SUBSCRIPTION])}, which is nobody's"
                yield breach(frame, "subscription-unknown", text)
            return
        if ask.state is State.ANSWERED:
            yield breach(frame, "subscription-unknown", f"subscription {shown(id)} was ended", ask.index)
        if self.book.transport is Transport.HTTP and ask not in frame.stream.asks:
            text = f"got a message of subscription {shown(id)} on another stream"
            yield breach(frame, "subscription-stream", text, ask.index)
        if ask not in self._by_ask:
            self._by_ask[ask] = Subscription(ask)
        yield from self._told(frame, self._by_ask[ask])

    def _find(self, frame: Frame, id: str | int) -> Ask | None:
        mine = [ask for ask in frame.stream.asks if ask.id == id]
        return mine[0] if mine else self.book.asks[Role.CLIENT].get(id)

    def _told(self, frame: Frame, subscription: Subscription) -> Iterator[Breach]:
        sought = subscription.ask.sought or {}
        if frame.method == ACK:
            yield from self._acknowledged(frame, subscription, sought)
            return
        if subscription.acknowledged is None:
            yield breach(frame, "listen-first", f"got {frame.method} before {ACK}", subscription.ask.index)
        if not _is_sought(frame, sought):
            yield breach(
                frame, "listen-unrequested", f"got {frame.method}, which was not asked for", subscription.ask.index
            )
        elif subscription.acknowledged is not None and not _is_sought(frame, subscription.acknowledged):
            text = f"got {frame.method}, which was not acknowledged"
            yield breach(frame, "listen-unrequested", text, subscription.ask.index)

    def _acknowledged(self, frame: Frame, subscription: Subscription, sought: JsonObject) -> Iterator[Breach]:
        if subscription.acknowledged is not None:
            yield breach(frame, "listen-first", f"got {ACK} a second time", subscription.ask.index)
        said = frame.params.get("notifications")
        subscription.acknowledged = said if isinstance(said, dict) else {}
        for name, value in subscription.acknowledged.items():
            wanted: Any = sought.get(name)
            if isinstance(value, list):
                strange = [each for each in value if not isinstance(wanted, list) or each not in wanted]
            else:
                strange = [name] if value and not wanted else []
            if strange:
                text = f"acknowledges {name} of {', '.join(map(shown, strange))[:120]}, which was not asked for"
                yield breach(frame, "listen-acknowledged", text, subscription.ask.index)


_NAMED: Final = {"notifications/resources/updated": "resourceSubscriptions", "notifications/tasks": "taskIds"}


def _is_sought(frame: Frame, sought: JsonObject) -> bool:
    """Whether a filter has a notification. An update may name a resource below the one that was asked for."""
    if frame.method in FLAGS:
        return bool(sought.get(FLAGS[frame.method]))
    listed = sought.get(_NAMED.get(frame.method, ""))
    if not isinstance(listed, list):
        return False
    if frame.method == "notifications/tasks":
        return frame.params.get("taskId") in listed
    uri = frame.params.get("uri")
    return isinstance(uri, str) and any(isinstance(each, str) and uri.startswith(each) for each in listed)
