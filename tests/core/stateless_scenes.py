"""One call of a client without sessions, in each state that it can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driving import Heard, request
from isthmus.core.base.effects import Listen as Get
from isthmus.core.base.effects import Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import (
    ACCEPT,
    ask,
    collect,
    give,
    rounds,
    served,
)

LIMITS = Limits(session_idle_ttl_s=900.0)
ANSWERED = {"r1": ACCEPT}


class Scene:
    """One call in one state, over a server that is ready.

    Attributes:
        heard: the call as the server knows it, once it does.
        leg: the channel of the request that waits, if one does.
        state: what a client that is away comes back with.
        is_asking: a question of the server is open.
    """

    def __init__(self, up: str, down: str, state: str) -> None:
        self.world, self.client, _ = served(up, down, limits=LIMITS)
        self.leg: ChannelId | None = None
        self.heard: Heard | None = None
        self.state: str | None = None
        self.is_asking = False
        self.name = state
        STATES[state](self)

    def begin(self, **said: Any) -> None:
        self.leg = self.client.call(**said)

    def run(self) -> None:
        self.begin()
        self.heard = self.world.hear("tools/call")

    def levelling(self) -> None:
        """It waits for the server to be told how much to log."""
        self.begin(level="debug")

    def collecting(self) -> None:
        self.run()
        assert self.heard is not None
        ask(self.world, self.heard)
        self.is_asking = True

    def park(self) -> None:
        self.collecting()
        collect(self.world)
        assert self.leg is not None
        self.state = rounds(self.client, self.leg, self.client.last_id)[1]
        if self.client.pipe is not None:
            self.world.sent[self.client.pipe].clear()
        self.leg = None

    def hold(self) -> None:
        self.park()
        assert self.heard is not None
        give(self.world, self.heard)
        self.is_asking = False

    def resume(self) -> None:
        self.park()
        self.begin(requestState=self.state, inputResponses=ANSWERED)
        assert self.world.hear("").frame["result"] == ACCEPT
        self.state, self.is_asking = None, False

    def defer(self) -> None:
        """A question waits for a call, and the call for its answer."""
        self.world.say(self.where_it_asks(), request('"q"', "roots/list"))
        self.begin()
        assert self.leg is not None
        self.state = rounds(self.client, self.leg, self.client.last_id)[1]
        if self.client.pipe is not None:
            self.world.sent[self.client.pipe].clear()
        self.leg = None
        self.is_asking = True

    def where_it_asks(self) -> ChannelId:
        last = next(d for d in reversed(self.world.dials) if isinstance(d.target, Spawn | Get))
        return last.channel

    def visit(self) -> None:
        """The server refuses it until a page is visited, once more after its client agreed."""
        self.run()
        for _ in range(2):
            assert self.heard is not None
            if self.state is not None:
                self.begin(requestState=self.state, inputResponses=ANSWERED)
                self.heard = self.world.hear("tools/call")
            message = f'{{"jsonrpc":"2.0","id":{self.heard.id},"error":{VISIT}}}'
            self.world.reply(self.heard, message.encode())
            if self.state is None:
                assert self.leg is not None
                self.state = rounds(self.client, self.leg, self.client.last_id)[1]
        self.state = self.heard = None

    def subscribe(self) -> None:
        self.leg = self.client.request("subscriptions/listen", notifications={"resourceSubscriptions": ["a:b"]})
        self.world.hear("resources/subscribe")


VISIT = (
    '{"code":-32042,"message":"visit","data":{"elicitations":'
    '[{"mode":"url","elicitationId":"e","url":"http://x","message":"m"}]}}'
)
STATES: dict[str, Callable[[Scene], None]] = {
    "levelling": Scene.levelling,
    "run": Scene.run,
    "collect": Scene.collecting,
    "parked": Scene.park,
    "held": Scene.hold,
    "resumed": Scene.resume,
    "deferred": Scene.defer,
    "visit": Scene.visit,
    "subscribing": Scene.subscribe,
}
