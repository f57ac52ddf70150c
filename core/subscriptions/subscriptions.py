"""The parts of this room, constructed in order."""

from __future__ import annotations

from ..downstream.downstream import Downstream
from ..state.context import Context
from ..upstream.upstream import Upstream
from .client_listens import ClientListens
from .passed_listens import PassedListens
from .server_listens import ServerListens


class Subscriptions:
    """Subscriptions (`subscriptions/listen`).

    Attributes:
        client_listens: those of clients.
        server_listens: ours with stateless servers.
        passed_listens: those of clients that are passed to such servers.
    """

    def __init__(self, context: Context, downstream: Downstream, upstream: Upstream) -> None:
        self.client_listens = ClientListens(context, upstream.writer, downstream)
        self.passed_listens = PassedListens(upstream.writer, downstream.responder)
        self.server_listens = ServerListens(
            context,
            upstream.writer,
            upstream.resumption,
            upstream.server_messages,
            upstream.handshaker,
            self.client_listens,
            self.passed_listens,
        )
