"""One call of a client of the stateless era, in each state that it can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driving import SentMessage, request
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.effects import Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    ask,
    collect,
    respond,
    rounds,
    served,
)

LIMITS = Limits(session_idle_ttl_s=900.0)
ANSWERED = {"r1": ACCEPT}


class Scene:
    """One call in one state, on a server that is ready.

    Attributes:
        received: the call as the server received it, once it has.
        request: the channel of the request that waits, if one does.
        state: the `requestState` of a client that is away.
        is_asking: a question of the server is open.
    """

    def __init__(self, up: str, down: str, state: str) -> None:
        self.world, self.client, _ = served(up, down, limits=LIMITS)
        self.request: ChannelId | None = None
        self.received: SentMessage | None = None
        self.state: str | None = None
        self.is_asking = False
        self.name = state
        STATES[state](self)

    def begin(self, **rest: Any) -> None:
        self.request = self.client.call(**rest)

    def run(self) -> None:
        self.begin()
        self.received = self.world.take_sent("tools/call")

    def set_level(self) -> None:
        """Begins a call that waits until the server has got its log level."""
        self.begin(level="debug")

    def collect(self) -> None:
        self.run()
        assert self.received is not None
        ask(self.world, self.received)
        self.is_asking = True

    def suspend(self) -> None:
        self.collect()
        collect(self.world)
        assert self.request is not None
        self.state = rounds(self.client, self.request, self.client.last_id)[1]
        if self.client.pipe is not None:
            self.world.sent[self.client.pipe].clear()
        self.request = None

    def hold(self) -> None:
        self.suspend()
        assert self.received is not None
        respond(self.world, self.received)
        self.is_asking = False

    def resume(self) -> None:
        self.suspend()
        self.begin(requestState=self.state, inputResponses=ANSWERED)
        assert self.world.take_sent("").frame["result"] == ACCEPT
        self.state, self.is_asking = None, False

    def defer(self) -> None:
        """Begins a call that is answered with a question that waited for a call."""
        self.world.send(self.server_channel(), request('"q"', "roots/list"))
        self.begin()
        assert self.request is not None
        self.state = rounds(self.client, self.request, self.client.last_id)[1]
        if self.client.pipe is not None:
            self.world.sent[self.client.pipe].clear()
        self.request = None
        self.is_asking = True

    def server_channel(self) -> ChannelId:
        """Returns the channel that the server sends requests on: its pipe or its GET stream."""
        last = next(d for d in reversed(self.world.dials) if isinstance(d.target, Spawn | Get))
        return last.channel

    def elicit_url(self) -> None:
        """Begins a call that the server refuses until a page is visited, twice."""
        self.run()
        for _ in range(2):
            assert self.received is not None
            if self.state is not None:
                self.begin(requestState=self.state, inputResponses=ANSWERED)
                self.received = self.world.take_sent("tools/call")
            message = f'{{"jsonrpc":"2.0","id":{self.received.id},"error":{URL_REQUIRED}}}'
            self.world.reply(self.received, message.encode())
            if self.state is None:
                assert self.request is not None
                self.state = rounds(self.client, self.request, self.client.last_id)[1]
        self.state = self.received = None

    def subscribe(self) -> None:
        self.request = self.client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
        self.world.take_sent("resources/subscribe")


URL_REQUIRED = (
    '{"code":-32042,"message":"visit","data":{"elicitations":'
    '[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}}'
)
STATES: dict[str, Callable[[Scene], None]] = {
    "setting_level": Scene.set_level,
    "run": Scene.run,
    "collect": Scene.collect,
    "suspended": Scene.suspend,
    "held": Scene.hold,
    "resumed": Scene.resume,
    "deferred": Scene.defer,
    "url_elicitation": Scene.elicit_url,
    "subscribing": Scene.subscribe,
}
