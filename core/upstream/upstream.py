"""The parts of this room, constructed in order."""

from __future__ import annotations

from ..downstream.downstream import Downstream
from ..state.context import Context
from .failures import Failures
from .handshake import Handshaker
from .resumption import Resumption
from .server_messages import ServerMessages
from .session_checks import SessionChecks
from .tool_discovery import ToolDiscovery
from .writer import UpstreamWriter


class Upstream:
    """Connections to servers.

    Attributes:
        writer: writes messages.
        resumption: resumes replies that were cut off.
        handshaker: makes connections.
        failures: handles the loss of servers.
        session_checks: asks sessions whether their servers still know them.
        server_messages: handles requests and notifications of servers.
        tool_discovery: reads lists of tools.
    """

    def __init__(self, context: Context, downstream: Downstream) -> None:
        responder, sessions = downstream.responder, downstream.sessions
        self.writer = UpstreamWriter(context)
        self.resumption = Resumption(context)
        self.handshaker = Handshaker(context, sessions, self.writer)
        self.failures = Failures(context, sessions, responder, self.writer, self.resumption, self.handshaker)
        self.session_checks = SessionChecks(context, self.writer, self.handshaker, self.failures)
        self.server_messages = ServerMessages(context, responder, self.writer)
        self.tool_discovery = ToolDiscovery(context, self.writer)
