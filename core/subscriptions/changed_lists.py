"""Changes of the lists of processes, which replicas tell each other.

Each replica runs processes of its own. A client without a session listens at one replica, and its calls may reach the
process of another. If that process changes a list, the replica saves a record of it, and the others tell those of their
clients that the process works for, as if their own process had sent the notification.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..base.plan import Kind, ServerPlan, Sharing
from ..base.storage import Save, Saved, StorageAnswer
from ..downstream.responder import Responder
from ..downstream.session_ids import derived_sid
from ..downstream.sessions import Sessions
from ..jsonrpc import envelope
from ..jsonrpc.envelope import Frame
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.feature import Feature
from ..state.interceptor import Interceptor
from ..state.link import Link
from ..state.list_changes import LISTS_OF
from ..state.records import read
from ..state.session import Session
from ..state.storage_orders import StorageOrders, reason_of

CHANGE_PREFIX: Final = "change/"
CHANGE_TTL_S: Final = 60.0
"""Lifetime of the record of a change. Other replicas read it within a second, or after an outage."""
PAUSE_S: Final = 1.0
"""Time between two records about one process. A process that goes on changing its lists costs one operation of the
storage in that time."""
TIMER: Final = "changed lists"


class StoredChange(msgspec.Struct, frozen=True):
    """The record of changed lists of one process.

    Attributes:
        server: its name.
        audience: names the clients that it works for (`_audience_of`).
        methods: the notifications, sorted.
        replica: the replica that runs it.
    """

    server: str
    audience: str
    methods: tuple[str, ...]
    replica: str

    @property
    def key(self) -> str:
        digest = hashlib.sha256(f"{self.replica} {self.server} {self.audience}".encode()).hexdigest()
        return CHANGE_PREFIX + digest[:32]


class ChangedLists(Interceptor, Feature):
    """Tells other replicas of changed lists, and clients of those that were changed elsewhere."""

    name = "changed lists"

    def __init__(
        self, context: Context, storage_orders: StorageOrders, responder: Responder, sessions: Sessions
    ) -> None:
        self._context = context
        self._storage_orders = storage_orders
        self._responder = responder
        self._sessions = sessions
        assert context.plan.replica is not None
        self._own = context.plan.replica.owner
        self._waiting: dict[tuple[str, str], set[str]] = {}  # what changed since the last record, by server, audience
        self.interceptors = (self,)
        self.timers = {TIMER: self._handle_pause}

    def __len__(self) -> int:
        return len(self._waiting)

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.kind is not Kind.HTTP

    def has_say(self, link: Link) -> bool:
        return False

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        method, shared = frame.method, link.shared_process
        if method is not None and method in LISTS_OF:
            audience = self._audience_of(link.session) if shared is None else _shared_by(shared.principal)
            if audience is not None:
                self._receive_change((link.plan.id, audience), method)
        return False

    def _receive_change(self, process: tuple[str, str], method: str) -> None:
        waiting = self._waiting.get(process)
        if waiting is not None:
            waiting.add(method)
        else:
            self._save(process, {method})

    def _save(self, process: tuple[str, str], methods: set[str]) -> None:
        server, audience = process
        record = StoredChange(server, audience, tuple(sorted(methods)), self._own)

        def saved(answer: StorageAnswer) -> None:
            if not isinstance(answer, Saved):
                text = f"other replicas were not told of a changed list: {reason_of(answer)}"
                self._context.note("warning", text, server)

        self._waiting[process] = set()
        self._context.timers.set((TIMER, process), self._context.now + PAUSE_S, "record of changed lists")
        key, value, until_unix = record.key, msgspec.json.encode(record), self._context.now_unix + CHANGE_TTL_S
        self._storage_orders.order(lambda ticket: Save(ticket, key, value, until_unix), saved)

    def _handle_pause(self, server: str, audience: str) -> None:
        methods = self._waiting.pop((server, audience))
        if methods:
            self._save((server, audience), methods)

    def receive_record(self, key: str, value: bytes | None) -> None:
        if not key.startswith(CHANGE_PREFIX):
            return
        record = read(value, StoredChange)
        if record is None or record.replica == self._own:
            return
        for session in list(self._sessions.sessions.values()):
            if session.server == record.server and self._audience_of(session) == record.audience:
                for method in record.methods:
                    if method in LISTS_OF:
                        self._responder.deliver(session, method, envelope.encode_notification(method, None), None)

    # --- Audiences --------------------------------------------------------------------------------------------------

    def _audience_of(self, session: Session) -> str | None:
        """Returns the name of the clients that a session's process works for; None if none of them has its requests at
        other replicas."""
        plan, affinity = self._context.servers.get(session.server), session.affinity
        if plan is None or affinity is None or affinity.group or affinity.is_for_one or affinity.handle:
            return None
        if plan.sharing is Sharing.NONE:
            return derived_sid(self._context.plan.link_key, affinity)
        return _shared_by("" if plan.shares_with_everyone else session.principal)


def _shared_by(principal: str) -> str:
    return hashlib.sha256(principal.encode()).hexdigest()[:32]
