"""The parts of this room, constructed in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.events import (
    Cause,
    DeleteOpening,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
)
from ..base.ids import ChannelId
from ..downstream.downstream import Downstream
from ..routing.router import Router
from ..state.context import ChannelRole, Context
from ..state.feature import ChannelHandler, OpeningHandler, TimerHandler
from ..state.ports import RouterOf
from ..subscriptions.subscriptions import Subscriptions
from ..upstream.upstream import Upstream
from ..wire.websocket import GOING_AWAY
from .channels import MessageRole, PipeRole, PostRole, StreamRole
from .fast_path import FastPath
from .pipes import Pipes
from .streamable_http import StreamableHttp

if TYPE_CHECKING:
    from ..input_required.questions import Questions


class Endpoints:
    """The endpoints for clients.

    Args:
        router_of: returns the router of each endpoint.
        questions: carries questions across eras; None: no client without sessions is served.

    Attributes:
        fast_path: handles plain calls.
        openings: the handler of each kind of opening. Each raises LocalProtocolError for an unknown server.
        channels: the handler of the channels with each role.
        timers: the handler of each timer, by purpose.
    """

    def __init__(
        self,
        context: Context,
        downstream: Downstream,
        upstream: Upstream,
        subscriptions: Subscriptions,
        router: Router,
        router_of: RouterOf,
        questions: Questions | None,
    ) -> None:
        stateless = None
        if questions is not None:
            from .stateless import Stateless  # here, since a copy without `input_required` lacks what it imports

            stateless = Stateless(context, downstream, upstream, subscriptions, questions, router_of)
        known = None if stateless is None else stateless.known
        self.fast_path = fast_path = FastPath(context, downstream, upstream, router, known)
        streamable_http = StreamableHttp(context, downstream, router_of, stateless, fast_path)
        pipes = Pipes(context, downstream, router_of, stateless)
        self.openings: Mapping[type, OpeningHandler] = {
            PostOpening: streamable_http.open_post,
            GetOpening: streamable_http.open_stream,
            DeleteOpening: streamable_http.open_delete,
            EventPipeOpening: pipes.open_event_pipe,
            MessageOpening: pipes.open_message,
            PipeOpening: pipes.open_pipe,
        }
        self.channels: Mapping[type[ChannelRole], ChannelHandler] = {
            PostRole: streamable_http,
            StreamRole: _EventStreams(context, streamable_http),
            PipeRole: pipes,
            MessageRole: _Messages(pipes),
        }
        self.timers: Mapping[str, TimerHandler] = {"greeting": pipes.handle_greeting}


class _EventStreams(ChannelHandler):
    """The channels of GET requests."""

    def __init__(self, context: Context, streamable_http: StreamableHttp) -> None:
        self._context = context
        self._streamable_http = streamable_http

    def receive_close(self, role: StreamRole, channel: ChannelId, cause: Cause) -> None:
        self._streamable_http.receive_stream_close(role, channel)

    def stop(self, role: StreamRole, channel: ChannelId) -> None:
        self._context.close(channel, reason="the proxy is shutting down", code=GOING_AWAY)


class _Messages(ChannelHandler):
    """The channels of POST requests to event pipes."""

    def __init__(self, pipes: Pipes) -> None:
        self._pipes = pipes

    def receive_message(self, role: Any, channel: ChannelId, message: bytes) -> None:
        self._pipes.receive_posted(role, channel, message)
