"""Clients without sessions against a plain model: what each call of theirs is owed, in any order of events.

Clients on pipes and HTTP call, come back, with all answers or some, with a state that is spent or somebody else's, hang
up and wait; their servers ask, withdraw, report, answer and die. The model reads the effects as peers would. It holds
that

- every request gets one answer, on its own channel under its own id, or its client has cancelled it;
- an answer is made of its own call's payload, and progress has the token of the leg it is told on;
- every question of a server is answered once at most, under its own id, with what was said to it; never after it was
  withdrawn or its call was over;
- a call is written upstream once, and cancelled once if its client did not want it any more;
- a state goes on with its call once, for whom it was given;
- when the proxy stops, everybody who waits is answered and nothing is left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from driving import Heard, notification, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.base.effects import Connected, Dial, Spawn
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import ACCEPT, Modern, assert_empty, bridge, give, modern, refuse_discovery, speak

LIMITS = Limits(reply_timeout_s=1e9)
"""Nobody is given up but for being away."""

WAYS = (("http", "ann"), ("pipe", "bob"), ("http", "eve"))


@dataclass(eq=False)
class Call:
    """One call, over all its legs.

    Attributes:
        leg: the channel and the id of the request that waits for an answer, if one does.
        state: with what its client comes back, if it is away; `keys` are the questions it was given, by their tags.
        heard: as its server knows it.
        asked: the questions of the server that wait, by their ids.
        is_ended: its server has answered it, or is gone.
        is_cancelled: its client does not want it any more.
    """

    client: Modern
    tag: str
    leg: tuple[ChannelId, int] | None
    token: str
    heard: Heard | None = None
    state: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    is_ended: bool = False
    is_cancelled: bool = False
    is_over: bool = False

    @property
    def lives(self) -> bool:
        """Whether its server is at work on it."""
        return self.heard is not None and not self.is_ended and not self.is_cancelled


class StatelessWorld(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = bridge(limits=LIMITS, seed=seed)
        self.clients = [modern(self.world, "pipe", down, principal=principal) for down, principal in WAYS]
        self.calls: list[Call] = []
        self.spent: list[tuple[Call, str]] = []
        self.said: dict[str, dict[str, Any]] = {}
        self.read: dict[ChannelId, int] = {}
        self.opened: set[ChannelId] = set()
        self.count = 0
        self.call(0)

    # --- Clients ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.alive()) < 4)
    @rule(index=st.integers(0, 2))
    def call(self, index: int) -> None:
        self.count += 1
        client, tag = self.clients[index], f"t{self.count}"
        call = Call(client, tag, None, tag)
        self.calls.append(call)
        channel = client.call(arguments={"tag": tag}, token=tag)
        call.leg = channel, client.last_id
        self.tend()

    @precondition(lambda self: any(call.state for call in self.calls))
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """With answers to some of the questions."""
        call = data.draw(st.sampled_from([call for call in self.calls if call.state]), label="call")
        assert call.state is not None
        given = set(call.keys)
        if data.draw(st.booleans(), label="forgets some"):
            given = data.draw(st.sets(st.sampled_from(sorted(call.keys))), label="answered")
        answers = {}
        for key in sorted(given):
            self.count += 1
            answers[key] = {**ACCEPT, "content": {"n": self.count}}
            if call.keys[key] in call.asked and call.lives:
                self.said[call.keys[key]] = answers[key]
        self.count += 1
        state, call.state, call.token = call.state, None, f"t{self.count}"
        channel = call.client.call(
            arguments={"tag": call.tag}, token=call.token, requestState=state, inputResponses=answers
        )
        call.leg = channel, call.client.last_id
        self.spent.append((call, state))
        self.tend()

    @precondition(lambda self: self.spent or any(call.state for call in self.calls))
    @rule(data=st.data())
    def come_in_vain(self, data: st.DataObject) -> None:
        """With a state that was used, or that is another's."""
        others = [(call, call.state) for call in self.calls if call.state]
        call, state = data.draw(st.sampled_from(self.spent + others), label="state")
        is_thief = (call, state) in others
        client = data.draw(st.sampled_from([c for c in self.clients if (c is not call.client) or not is_thief]))
        channel = client.call(arguments={"tag": call.tag}, requestState=state, inputResponses={"r1": ACCEPT})
        answer = client.answered(channel, client.last_id)
        assert answer["error"]["code"] == -32602
        self.read[channel] = len(self.world.messages(channel))

    @precondition(lambda self: any(call.leg for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if call.leg]), label="call")
        assert call.leg is not None
        (channel, id), call.leg = call.leg, None
        call.client.cancel(channel, str(id))
        self.give_up(call)
        self.tend()

    def give_up(self, call: Call) -> None:
        """What is open of a call is answered as by a user who turns away."""
        if call.lives:
            for question in call.asked:
                self.said[question] = {"action": "cancel"}
        call.is_cancelled = call.is_over = True

    # --- Servers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls and not any(call.state for call in self.calls))
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        """Some call that can be asked is, and its client is away then."""
        self.ask(data)
        self.wait_a_little()

    def alive(self) -> list[Call]:
        return [call for call in self.calls if call.lives]

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """In the course of the call that is the only one of its process: on a pipe others could be meant."""
        alone = [c for c in self.alive() if sum(o.client is c.client for o in self.alive()) == 1]
        if not alone:
            return
        call = data.draw(st.sampled_from(alone), label="call")
        assert call.heard is not None
        self.count += 1
        question = f"q{self.count}"
        call.asked.add(question)
        params = {"message": question, "requestedSchema": {"type": "object", "properties": {}}}
        speak(self.world, call.heard, request(json.dumps(question), "elicitation/create", json.dumps(params)))
        self.tend()
        if data.draw(st.booleans(), label="and no more"):
            self.wait_a_little()

    @precondition(lambda self: any(call.asked for call in self.alive()))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.alive() if call.asked]), label="call")
        question = data.draw(st.sampled_from(sorted(call.asked)))
        assert call.heard is not None
        call.asked.discard(question)
        said = json.dumps({"requestId": question})
        speak(self.world, call.heard, notification("notifications/cancelled", said))
        self.tend()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.alive()), label="call")
        assert call.heard is not None
        token = call.heard.frame["params"]["_meta"]["progressToken"]
        said = json.dumps({"progressToken": token, "progress": self.count, "message": call.tag})
        speak(self.world, call.heard, notification("notifications/progress", said))
        self.tend()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.alive()), label="call")
        assert call.heard is not None
        call.is_ended = True
        for question in call.asked:  # it does not wait for that, but has asked
            self.said[question] = {"action": "cancel"}
        call.asked.clear()
        give(self.world, call.heard, json.dumps({"content": [], "tag": call.tag}))
        self.tend()

    @precondition(lambda self: self.alive() and self.count % 3 == 0)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.alive()), label="call").heard
        assert victim is not None
        for call in self.alive():
            if call.heard is not None and call.heard.channel == victim.channel:
                call.is_ended = True
                call.asked.clear()
        self.world.end(victim.channel)
        self.tend()

    # --- Time -------------------------------------------------------------------------------------------------------

    @rule()
    def wait_a_little(self) -> None:
        self.world.wait(LIMITS.collect_s)
        self.tend()

    @precondition(lambda self: self.count % 4 == 0)
    @rule()
    def wait_for_long(self) -> None:
        """Whoever is away does not come back in time: its call is given up, and so is an answer that waits for it."""
        self.wait_a_little()
        for call in self.calls:
            if call.state:
                self.give_up(call)
                call.state = None
        self.world.wait(LIMITS.park_ttl_s + 61)
        self.tend()

    # --- What comes of it -------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Servers start by themselves; what they are sent is noted, and what clients are told is read."""
        world = self.world
        while True:
            fresh = [
                dial.channel
                for dial in world.every(Dial)
                if isinstance(dial.target, Spawn) and dial.channel not in self.opened | world.over
            ]
            for channel in fresh:
                self.opened.add(channel)
                world.open(channel, Connected())
            if world.hears("server/discover"):
                refuse_discovery(world)
            elif world.hears("initialize"):
                world.answer(world.hear("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}')
            elif not fresh:
                break
        for heard in world.heard:
            self.receive(heard)
        world.heard.clear()
        for channel in {call.leg[0] for call in self.calls if call.leg is not None}:
            self.look(channel)

    def receive(self, heard: Heard) -> None:
        frame = heard.frame
        if frame.get("method") == "tools/call":
            (call,) = (c for c in self.calls if c.tag == frame["params"]["arguments"]["tag"])
            assert call.heard is None, "nothing is written twice"
            call.heard = heard
        elif frame.get("method") == "notifications/cancelled":
            (call,) = (c for c in self.calls if c.heard and is_of(heard, c.heard, frame["params"]["requestId"]))
            assert call.is_cancelled
        elif "method" not in frame:
            assert frame["result"] == self.said.pop(frame["id"]), "said once, to whom it was for"
            for call in self.calls:
                call.asked.discard(frame["id"])

    def look(self, channel: ChannelId) -> None:
        """What was said on a channel since."""
        messages = self.world.messages(channel)
        fresh, self.read[channel] = messages[self.read.get(channel, 0) :], len(messages)
        for frame in map(json.loads, fresh):
            if "method" in frame:
                (call,) = (c for c in self.calls if c.tag == frame["params"]["message"])
                assert call.token == frame["params"]["progressToken"]
                assert call.leg is not None
                assert call.leg[0] == channel
            else:
                (call,) = (c for c in self.calls if c.leg == (channel, frame["id"]))
                self.settle(call, frame)

    def settle(self, call: Call, frame: dict[str, Any]) -> None:
        call.leg = None
        result = frame.get("result", {})
        if result.get("resultType") == "input_required":
            call.state = result["requestState"]
            entries = result["inputRequests"]
            call.keys = {key: entry["params"]["message"] for key, entry in entries.items()}
            assert set(call.keys.values()) <= call.asked | set(self.said), "only what is asked"
            return
        if call.heard is None:
            assert frame["error"]["data"]["outcome"] == "not_executed"
        else:
            assert call.is_ended, "nobody answers for a server that is at work"
            assert "error" in frame or result["tag"] == call.tag
        call.is_over = True

    @invariant()
    def who_waits_waits_for_something(self) -> None:
        """A leg without an answer has a server that is at work."""
        for call in self.calls:
            if call.leg is not None:
                assert call.lives, call
        assert not self.said, "what is said to a question is passed on at once"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        waiting = [call for call in self.calls if call.leg is not None]
        self.world.stop()
        for call in waiting:
            assert call.leg is not None
            assert "error" in call.client.answered(*call.leg) or call.is_ended
        assert_empty(self.world)


def is_of(heard: Heard, call: Heard, number: int) -> bool:
    return (heard.channel, number) == (call.channel, call.id)


TestStateless = StatelessWorld.TestCase
TestStateless.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
