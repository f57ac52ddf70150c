"""The parts of this room, constructed in order."""

from __future__ import annotations

from ..state.context import Context
from ..state.storage_orders import StorageOrders
from .decisions import Decisions
from .event_store import EventStore
from .event_streams import Streams
from .responder import Responder
from .sessions import Sessions


class Downstream:
    """Sessions of clients, and what they are sent.

    Attributes:
        streams: writes to the event streams of clients.
        responder: sends responses and messages of servers.
        decisions: decides about requests of clients.
        sessions: the registry of sessions.
    """

    def __init__(self, context: Context, storage_orders: StorageOrders) -> None:
        self.streams = Streams(context, EventStore(context, storage_orders))
        self.responder = Responder(context, self.streams)
        self.decisions = Decisions(context, self.responder)
        self.sessions = Sessions(context, self.responder, self.streams)
