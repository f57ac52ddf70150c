"""Dialogues with one engine: who says what to whom, one line each, and what each peer is expected to get.

A peer says something with an active verb (`asks`, `answers`, `notifies`, `dies`) and expects something with a passive
one (`is_asked`, `is_answered`, `is_notified`, `is_closed`). Everything that the engine orders has to be expected before
anybody says anything else, in its order for each peer; `on=` names one channel of a peer instead. Flow control, what
is stored, the report of closed channels and the 202 for messages that ask nothing are automatic.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from checked_engine import CheckedEngine
from dialogue_peers import Client, Peer, Request, Server
from expected_values import matches, shown
from isthmus.core import (
    Allowed,
    Cause,
    ChannelId,
    Close,
    Collect,
    Collected,
    CollectedFile,
    Conflicted,
    Decide,
    Delete,
    Denied,
    Dial,
    Discard,
    Effect,
    End,
    Extend,
    Extended,
    Fetch,
    Fetched,
    FileSource,
    Forget,
    Headers,
    Join,
    Kind,
    Limits,
    Listen,
    Load,
    Loaded,
    Materialize,
    Materialized,
    Note,
    Plan,
    Post,
    Save,
    Saved,
    SeenFile,
    Send,
    ServerPlan,
    Sighting,
    Spawn,
    Survey,
    Surveyed,
    Target,
)

DONE: Final = Cause(End.DONE)


def _of_files(order: Materialize | Survey | Collect | Fetch) -> Materialized | Surveyed | Collected | Fetched:
    """Returns the answer of a storage in which all files are, each with the content "hello"."""
    if isinstance(order, Materialize):
        return Materialized(f"/w/{order.workspace}/{order.folder}/{order.filename}")
    if isinstance(order, Fetch):
        return Fetched(b"hello")
    if isinstance(order, Survey):
        return Surveyed(tuple(Sighting(files=(SeenFile(paths[0], 5, "s"),)) for paths in order.named))
    paths = [source.candidates[0] for source in order.sources if isinstance(source, FileSource)]
    return Collected(
        tuple(CollectedFile(path=path, filename=path.rpartition("/")[2], size_bytes=5, head=b"hello") for path in paths)
    )


@dataclass(frozen=True)
class Came:
    """Something that the engine did to a peer."""

    peer: Peer
    verb: str
    what: Any
    channel: ChannelId
    request: Request | None = None

    def __str__(self) -> str:
        return sentence(self.peer, self.verb, self.what)


def sentence(peer: Peer, verb: str, what: Any) -> str:
    """Returns what happens to a peer, for people. `what` is None, a message, or a method with its params."""
    told = what if isinstance(what, list) else [] if what is None else [what]
    return " ".join([peer.name, verb, *(each if isinstance(each, str) else shown(each) for each in told)])


class Dialogue:
    """An engine, its clients and its servers.

    Args:
        servers: by default a process named "files".
        rest: of the plan.
    """

    made: ClassVar[list[Dialogue]] = []
    """The dialogues of the running test, which ends with nothing unexpected."""

    def __init__(self, *servers: ServerPlan, limits: Limits | None = None, seed: int = 1, **rest: Any) -> None:
        plans = servers or (ServerPlan(id="files", kind=Kind.PIPE),)
        plan = Plan(servers=plans, link_keys=(b"0123456789abcdef",), workspaces_path="/w", **rest)
        self.engine = CheckedEngine(
            plan, entropy=random.Random(seed).randbytes, unix_at_zero=1e9, has_storage=True, limits=limits
        )
        self.now = 100.0
        self.records: dict[str, bytes] = {}  # of its storage
        self.drafts: dict[str, bytes] = {}  # and what it was given part by part
        self.late_for: tuple[type[Effect], ...] = ()  # storage orders that are carried out only by `catches_up`
        self.late: list[Effect] = []
        self.statuses: dict[ChannelId, int] = {}  # HTTP statuses that clients got
        self.headers: dict[ChannelId, Headers] = {}  # and headers of a kind of their own
        self.audited: list[str] = []  # lines of the audit log
        self.unexpected: list[Came] = []
        self.undecided: list[Decide] = []
        self.owners: dict[ChannelId, Peer] = {}
        self.dialled: list[Target] = []  # all targets, until a story clears the list
        self.silent: set[ChannelId] = set()
        self.slow: set[ChannelId] = set()  # their ends are not reported by themselves
        self.over: set[ChannelId] = set()
        self.servers = [Server(self, each) for each in plans]
        self.made.append(self)

    @property
    def server(self) -> Server:
        return self.servers[0]

    def client(self, name: str, down: str = "pipe", *, server: str = "", **rest: Any) -> Client:
        """Returns a client that has said nothing yet, on a pipe or over HTTP."""
        return Client(self, name, server or self.server.name, down, **rest)

    def waits(self, seconds: float) -> None:
        """Time goes by, deadline by deadline."""
        self.finish()
        end = self.now + seconds
        while (deadline := self.engine.next_timeout()) is not None and deadline.at <= end:
            self.now = max(self.now, deadline.at)
            self.carry_out(self.engine.handle_timeout(self.now))
        self.now = end

    def allows(self, decide: Decide) -> None:
        self.happens(lambda now: self.engine.receive_answer(decide.ticket, Allowed(), now))

    def denies(self, decide: Decide, text: str = "no", **rest: Any) -> None:
        self.happens(lambda now: self.engine.receive_answer(decide.ticket, Denied(text, **rest), now))

    def catches_up(self) -> None:
        """The storage carries out what it was late for."""
        self.late_for = ()
        while self.late:
            self.carry_out([self.late.pop(0)])

    def stops(self) -> None:
        self.happens(self.engine.receive_stop)

    def happens(self, report: Callable[..., list[Effect]], *told: Any) -> None:
        """Gives the engine an input, once all that came before was expected."""
        self.finish()
        self.carry_out(report(*told, self.now))

    def finish(self) -> None:
        """Checks that everything that came was expected."""
        assert not self.unexpected, "\n".join(
            ["expected: nothing more", *(f"but came: {each}" for each in self.unexpected)]
        )

    def expects(self, peer: Peer, verb: str, what: Any, on: Request | ChannelId | None = None) -> Came:
        """Takes the oldest thing that came to a peer, or to one of its channels."""
        channel = on.channel if isinstance(on, Request) else on
        for came in self.unexpected:
            if came.peer is peer and channel in (None, came.channel):
                if came.verb == verb and matches(what, came.what):
                    self.unexpected.remove(came)
                    return came
                break
        elsewhere = "" if channel is None else " (on another channel)"
        came_text = [f"but came: {each}{'' if each.channel == channel else elsewhere}" for each in self.unexpected] or [
            "but nothing came"
        ]
        raise AssertionError("\n".join([f"expected: {sentence(peer, verb, what)}", *came_text]))

    def carry_out(self, effects: list[Effect]) -> None:
        orders = deque(effects)
        while orders:
            orders.extend(self._carry_out(orders.popleft()))

    def _carry_out(self, order: Effect) -> list[Effect]:
        """Carries out one effect. Returns the effects of what it causes."""
        if isinstance(order, Send):
            assert order.channel not in self.over, f"ordered for a channel that is over: {order}"
            peer = self.owners[order.channel]
            self.statuses.setdefault(order.channel, order.status)
            self.headers.setdefault(order.channel, order.headers)
            peer.session = order.session or peer.session
            peer.seen.setdefault(order.channel, []).extend([order.event_id] if order.event_id else [])
            if order.message:
                peer.hears(order.channel, order.message)
            sent = self.engine.receive_sent(order.channel, len(order.message), self.now)
            return sent + (self.ends(order.channel) if order.is_last else [])
        if isinstance(order, Close):
            if order.channel not in self.silent:
                self.came(self.owners[order.channel], "is closed", None, order.channel)
            return [] if order.channel in self.slow else self.ends(order.channel)
        if isinstance(order, Dial):
            return self._dial(order)
        if isinstance(order, Decide):
            self.undecided.append(order)
            self.came(self.owners[order.channel], "waits for a decision on", [order.method, order.name], order.channel)
        if isinstance(order, Note) and order.is_audit:
            self.audited.append(order.text)
        if isinstance(order, self.late_for):
            self.late.append(order)
            return []
        if isinstance(order, Forget):
            self.records.pop(order.key, None)
        if isinstance(order, Save | Load):
            answer: Saved | Conflicted | Loaded = Loaded(self.records.get(order.key))
            if isinstance(order, Save) and order.if_version == 0 and order.key in self.records:
                answer = Conflicted()
            elif isinstance(order, Save):
                self.records[order.key], answer = order.value, Saved()
            return self.engine.receive_answer(order.ticket, answer, self.now)
        if isinstance(order, Extend):
            draft = self.drafts.setdefault(order.blob, b"") + order.data
            assert len(draft) == order.offset + len(order.data)
            self.drafts[order.blob] = draft
            sha256 = hashlib.sha256(draft).hexdigest() if order.is_last else ""
            return self.engine.receive_answer(order.ticket, Extended(len(draft), sha256), self.now)
        if isinstance(order, Discard):
            self.drafts.pop(order.blob, None)
        if isinstance(order, Materialize | Survey | Collect | Fetch):
            return self.engine.receive_answer(order.ticket, _of_files(order), self.now)
        return []

    def _dial(self, order: Dial) -> list[Effect]:
        self.dialled.append(order.target)
        target, channel = order.target, order.channel
        peer = next(each for each in self.servers if each.name == target.server)
        self.owners[channel] = peer
        if isinstance(target, Spawn | Join):
            peer.channel = channel
            self.came(peer, "is started", None, channel)
        elif isinstance(target, Post):
            peer.hears(channel, target.message, target)
            if "method" not in (frame := json.loads(target.message)) or "id" not in frame:
                return self.ends(channel)
        elif isinstance(target, Listen):
            peer.stream = channel
            self.came(peer, "is listened to", None, channel)
        elif isinstance(target, Delete):
            self.came(peer, "is left", target.session, channel)
            return self.ends(channel)
        return []

    def came(self, peer: Peer, verb: str, what: Any, channel: ChannelId, request: Request | None = None) -> None:
        self.unexpected.append(Came(peer, verb, what, channel, request))

    def ends(self, channel: ChannelId, cause: Cause = DONE) -> list[Effect]:
        """Reports the end of a channel."""
        self.over.add(channel)
        return self.engine.receive_close(channel, cause, self.now)
