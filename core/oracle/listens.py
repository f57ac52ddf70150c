"""Checks of subscriptions of 2026-07-28: acknowledged first, then only what was asked for, each message with its id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .book import WireState
from .methods import V5
from .observations import Role, Transport
from .seen import SUBSCRIPTION, Finding, Frame, JsonObject, Memory, MessageKind, Request, RequestState, key_of, shown
from .watch import Checker, breach

ACK: Final = "notifications/subscriptions/acknowledged"
FLAGS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class Subscription(msgspec.Struct, eq=False):
    """One `subscriptions/listen`. `acknowledged` is None until the acknowledgement."""

    request: Request
    acknowledged: JsonObject | None = None
    seen: list[int] = []


class SubscriptionChecker(Checker):
    """Checks every subscription, by its id."""

    def __init__(self, book: WireState) -> None:
        super().__init__(book)
        self._by_request: Memory[Request, Subscription] = book.memory()

    def frame(self, frame: Frame) -> Iterator[Finding]:
        if frame.revision != V5 or frame.sender is Role.CLIENT:
            return
        if frame.kind is MessageKind.NOTIFICATION:
            if frame.method == ACK or frame.method in FLAGS or SUBSCRIPTION in frame.meta or frame.method in _NAMED:
                yield from self._notification(frame)
        elif (
            frame.kind is MessageKind.RESULT
            and frame.request is not None
            and frame.request.method == "subscriptions/listen"
        ):
            if key_of(frame.meta.get(SUBSCRIPTION)) != frame.request.id:
                text = (
                    f"got the subscription id {shown(frame.meta.get(SUBSCRIPTION))}, expected {shown(frame.request.id)}"
                )
                yield breach(frame, "subscription-id", text, frame.request.index)

    def _notification(self, frame: Frame) -> Iterator[Finding]:
        if SUBSCRIPTION not in frame.meta:
            yield breach(frame, "subscription-id", f"got {frame.method} without a subscription id")
            return
        id = key_of(frame.meta[SUBSCRIPTION])
        request = None if id is None else self._find(frame, id)
        if request is None or request.method != "subscriptions/listen":
            if not self.book.requests[Role.CLIENT].has_forgotten:
                text = f"got the subscription id {shown(frame.meta[SUBSCRIPTION])}, which is nobody's"
                yield breach(frame, "subscription-unknown", text)
            return
        if request.state is RequestState.ANSWERED:
            yield breach(frame, "subscription-unknown", f"subscription {shown(id)} was ended", request.index)
        if self.book.transport is Transport.HTTP and request not in frame.stream.requests:
            text = f"got a message of subscription {shown(id)} on another stream"
            yield breach(frame, "subscription-stream", text, request.index)
        if request not in self._by_request:
            self._by_request[request] = Subscription(request)
        yield from self._delivered(frame, self._by_request[request])

    def _find(self, frame: Frame, id: str | int) -> Request | None:
        own = [request for request in frame.stream.requests if request.id == id]
        return own[0] if own else self.book.requests[Role.CLIENT].get(id)

    def _delivered(self, frame: Frame, subscription: Subscription) -> Iterator[Finding]:
        sought = subscription.request.sought or {}
        if frame.method == ACK:
            yield from self._acknowledged(frame, subscription, sought)
            return
        if subscription.acknowledged is None:
            yield breach(frame, "listen-first", f"got {frame.method} before {ACK}", subscription.request.index)
        if not _is_covered(frame, sought):
            yield breach(
                frame, "listen-unrequested", f"got {frame.method}, which was not asked for", subscription.request.index
            )
        elif subscription.acknowledged is not None and not _is_covered(frame, subscription.acknowledged):
            text = f"got {frame.method}, which was not acknowledged"
            yield breach(frame, "listen-unrequested", text, subscription.request.index)

    def _acknowledged(self, frame: Frame, subscription: Subscription, sought: JsonObject) -> Iterator[Finding]:
        if subscription.acknowledged is not None:
            yield breach(frame, "listen-first", f"got {ACK} a second time", subscription.request.index)
        listed = frame.params.get("notifications")
        subscription.request.receive_acknowledged()
        subscription.acknowledged = listed if isinstance(listed, dict) else {}
        for name, value in subscription.acknowledged.items():
            wanted: Any = sought.get(name)
            if isinstance(value, list):
                excess = [each for each in value if not isinstance(wanted, list) or each not in wanted]
            else:
                excess = [name] if value and not wanted else []
            if excess:
                text = f"acknowledges {name} of {', '.join(map(shown, excess))[:120]}, which was not asked for"
                yield breach(frame, "listen-acknowledged", text, subscription.request.index)


_NAMED: Final = {"notifications/resources/updated": "resourceSubscriptions", "notifications/tasks": "taskIds"}


def _is_covered(frame: Frame, sought: JsonObject) -> bool:
    """True if a filter includes a notification. An update may name a resource below the one that was asked for."""
    if frame.method in FLAGS:
        return bool(sought.get(FLAGS[frame.method]))
    listed = sought.get(_NAMED.get(frame.method, ""))
    if not isinstance(listed, list):
        return False
    if frame.method == "notifications/tasks":
        return frame.params.get("taskId") in listed
    uri = frame.params.get("uri")
    return isinstance(uri, str) and any(isinstance(each, str) and uri.startswith(each) for each in listed)
