"""Tests of stateless clients against a plain model: what each of their calls is owed, in any order of events.

Clients on pipes and HTTP call, retry with all answers or some, with a used state or that of another client, disconnect
and wait. Their servers ask, withdraw, report progress, answer and die. The model reads the effects as peers would, and
checks that

- every request gets one answer, on its own channel under its own id, or its client has cancelled it;
- an answer has the payload of its own call, and progress has the token of its request;
- every question of a server is answered at most once, under its own id, with its own answer, and never after it was
  withdrawn or its call has ended;
- a call is written upstream once, and cancelled once if its client has cancelled it;
- a state continues its call once, for its own client;
- when the proxy stops, every waiting request is answered and no state is left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from driving import SentMessage, notification, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from isthmus.core.base.effects import Dial, Spawn
from isthmus.core.base.events import Connected
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from stateless_driving import ACCEPT, Modern, assert_empty, bridge, modern, refuse_discovery, respond, send_during

LIMITS = Limits(reply_timeout_s=1e9)
"""Calls are given up only because their client is away."""

WAYS = (("http", "ann"), ("pipe", "bob"), ("http", "eve"))


@dataclass(eq=False)
class Call:
    """One call, over all its requests.

    Attributes:
        request: the channel and the id of the request that waits for an answer, if one does.
        state: the `requestState` of a client that is away.
        keys: the questions that the client was given, by their keys.
        received: the call as its server received it.
        asked: the open questions of the server, by their ids.
        is_ended: the server has answered the call, or is gone.
        is_cancelled: the client has cancelled the call.
    """

    client: Modern
    tag: str
    request: tuple[ChannelId, int] | None
    token: str
    received: SentMessage | None = None
    state: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    is_ended: bool = False
    is_cancelled: bool = False
    is_over: bool = False

    @property
    def lives(self) -> bool:
        """True if the server works on the call."""
        return self.received is not None and not self.is_ended and not self.is_cancelled


class StatelessWorld(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = bridge(limits=LIMITS, seed=seed)
        self.clients = [modern(self.world, "pipe", down, principal=principal) for down, principal in WAYS]
        self.calls: list[Call] = []
        self.spent: list[tuple[Call, str]] = []
        self.answers: dict[str, dict[str, Any]] = {}
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
        call.request = channel, client.last_id
        self.pump()

    @precondition(lambda self: any(call.state for call in self.calls))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Retries a call with answers to some of the questions."""
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
                self.answers[call.keys[key]] = answers[key]
        self.count += 1
        state, call.state, call.token = call.state, None, f"t{self.count}"
        channel = call.client.call(
            arguments={"tag": call.tag}, token=call.token, requestState=state, inputResponses=answers
        )
        call.request = channel, call.client.last_id
        self.spent.append((call, state))
        self.pump()

    @precondition(lambda self: self.spent or any(call.state for call in self.calls))
    @rule(data=st.data())
    def retry_with_a_wrong_state(self, data: st.DataObject) -> None:
        """Retries with a used state, or with that of another client."""
        others = [(call, call.state) for call in self.calls if call.state]
        call, state = data.draw(st.sampled_from(self.spent + others), label="state")
        is_thief = (call, state) in others
        client = data.draw(st.sampled_from([c for c in self.clients if (c is not call.client) or not is_thief]))
        channel = client.call(arguments={"tag": call.tag}, requestState=state, inputResponses={"r1": ACCEPT})
        answer = client.answered(channel, client.last_id)
        assert answer["error"]["code"] == -32602
        self.read[channel] = len(self.world.messages(channel))

    @precondition(lambda self: any(call.request for call in self.calls))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if call.request]), label="call")
        assert call.request is not None
        (channel, id), call.request = call.request, None
        call.client.cancel(channel, str(id))
        self.drop(call)
        self.pump()

    def drop(self, call: Call) -> None:
        """Ends a call: the server gets `cancel` for each open question."""
        if call.lives:
            for question in call.asked:
                self.answers[question] = {"action": "cancel"}
        call.is_cancelled = call.is_over = True

    # --- Servers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls and not any(call.state for call in self.calls))
    @rule(data=st.data())
    def suspend(self, data: st.DataObject) -> None:
        """Suspends some call by a question."""
        self.ask(data)
        self.wait_a_little()

    def alive(self) -> list[Call]:
        return [call for call in self.calls if call.lives]

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """Sends a question in the only call of a process. With more calls it could belong to any of them."""
        alone = [c for c in self.alive() if sum(o.client is c.client for o in self.alive()) == 1]
        if not alone:
            return
        call = data.draw(st.sampled_from(alone), label="call")
        assert call.received is not None
        self.count += 1
        question = f"q{self.count}"
        call.asked.add(question)
        params = {"message": question, "requestedSchema": {"type": "object", "properties": {}}}
        send_during(self.world, call.received, request(json.dumps(question), "elicitation/create", json.dumps(params)))
        self.pump()
        if data.draw(st.booleans(), label="and no more"):
            self.wait_a_little()

    @precondition(lambda self: any(call.asked for call in self.alive()))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.alive() if call.asked]), label="call")
        question = data.draw(st.sampled_from(sorted(call.asked)))
        assert call.received is not None
        call.asked.discard(question)
        params = json.dumps({"requestId": question})
        send_during(self.world, call.received, notification("notifications/cancelled", params))
        self.pump()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.alive()), label="call")
        assert call.received is not None
        token = call.received.frame["params"]["_meta"]["progressToken"]
        params = json.dumps({"progressToken": token, "progress": self.count, "message": call.tag})
        send_during(self.world, call.received, notification("notifications/progress", params))
        self.pump()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.alive()), label="call")
        assert call.received is not None
        call.is_ended = True
        for question in call.asked:  # the questions end with the call
            self.answers[question] = {"action": "cancel"}
        call.asked.clear()
        respond(self.world, call.received, json.dumps({"content": [], "tag": call.tag}))
        self.pump()

    @precondition(lambda self: self.alive() and self.count % 3 == 0)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.alive()), label="call").received
        assert victim is not None
        for call in self.alive():
            if call.received is not None and call.received.channel == victim.channel:
                call.is_ended = True
                call.asked.clear()
        self.world.end(victim.channel)
        self.pump()

    # --- Time -------------------------------------------------------------------------------------------------------

    @rule()
    def wait_a_little(self) -> None:
        self.world.wait(LIMITS.collect_s)
        self.pump()

    @precondition(lambda self: self.count % 4 == 0)
    @rule()
    def wait_for_long(self) -> None:
        """Waits until suspended calls and held answers are given up."""
        self.wait_a_little()
        for call in self.calls:
            if call.state:
                self.drop(call)
                call.state = None
        self.world.wait(LIMITS.suspended_call_ttl_s + 61)
        self.pump()

    # --- Checks -----------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Starts servers, takes the messages that they were sent, and reads those that clients were sent."""
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
            if world.was_sent("server/discover"):
                refuse_discovery(world)
            elif world.was_sent("initialize"):
                world.answer(world.take_sent("initialize"), '{"protocolVersion":"2025-11-25","capabilities":{}}')
            elif not fresh:
                break
        for received in world.unread:
            self.receive(received)
        world.unread.clear()
        for channel in {call.request[0] for call in self.calls if call.request is not None}:
            self.read_channel(channel)

    def receive(self, received: SentMessage) -> None:
        frame = received.frame
        if frame.get("method") == "tools/call":
            (call,) = (c for c in self.calls if c.tag == frame["params"]["arguments"]["tag"])
            assert call.received is None, "nothing is written twice"
            call.received = received
        elif frame.get("method") == "notifications/cancelled":
            (call,) = (
                c for c in self.calls if c.received and is_of(received, c.received, frame["params"]["requestId"])
            )
            assert call.is_cancelled
        elif "method" not in frame:
            assert frame["result"] == self.answers.pop(frame["id"]), "answered once, with its own answer"
            for call in self.calls:
                call.asked.discard(frame["id"])

    def read_channel(self, channel: ChannelId) -> None:
        """Reads the new messages on a channel."""
        messages = self.world.messages(channel)
        fresh, self.read[channel] = messages[self.read.get(channel, 0) :], len(messages)
        for frame in map(json.loads, fresh):
            if "method" in frame:
                (call,) = (c for c in self.calls if c.tag == frame["params"]["message"])
                assert call.token == frame["params"]["progressToken"]
                assert call.request is not None
                assert call.request[0] == channel
            else:
                (call,) = (c for c in self.calls if c.request == (channel, frame["id"]))
                self.settle(call, frame)

    def settle(self, call: Call, frame: dict[str, Any]) -> None:
        call.request = None
        result = frame.get("result", {})
        if result.get("resultType") == "input_required":
            call.state = result["requestState"]
            entries = result["inputRequests"]
            call.keys = {key: entry["params"]["message"] for key, entry in entries.items()}
            assert set(call.keys.values()) <= call.asked | set(self.answers), "only open questions"
            return
        if call.received is None:
            assert frame["error"]["data"]["outcome"] == "not_executed"
        else:
            assert call.is_ended, "only its server answers a running call"
            assert "error" in frame or result["tag"] == call.tag
        call.is_over = True

    @invariant()
    def waiting_requests_have_a_working_server(self) -> None:
        """A request without an answer has a server that works on it."""
        for call in self.calls:
            if call.request is not None:
                assert call.lives, call
        assert not self.answers, "an answer to a question is passed on at once"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        waiting = [call for call in self.calls if call.request is not None]
        self.world.stop()
        for call in waiting:
            assert call.request is not None
            assert "error" in call.client.answered(*call.request) or call.is_ended
        assert_empty(self.world)


def is_of(received: SentMessage, call: SentMessage, number: int) -> bool:
    return (received.channel, number) == (call.channel, call.id)


TestStateless = StatelessWorld.TestCase
TestStateless.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
