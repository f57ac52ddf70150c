"""Tests of the records: which messages belong to which request, for every kind of client and server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from driving import Driver, connect, driver
from isthmus.app.watch.digest import Digest
from isthmus.app.watch.records import AnyRecord, MessageRecord, Records, RequestRecord, SessionRecord
from isthmus.app.watch.redaction import Redactor
from isthmus.app.watch.wire_log import WireLog
from isthmus.core.base.telemetry import Detail

CALL = '{"name":"echo","arguments":{"text":"hi","api_key":"k3y"},"_meta":{"progressToken":"p"}}'


class Seen:
    """An engine that is watched from its start."""

    def __init__(self) -> None:
        self.world: Driver = driver(telemetry=Detail.STEPS)
        self.log = WireLog(self.world.engine, lambda: 1e9 + self.world.now)
        self.log.attach()
        self.records = Records()
        self.digest = Digest(self.records, Redactor(), has_bodies=True)

    def all(self) -> list[AnyRecord]:
        while True:
            entries, dropped = self.log.take(7)
            if not entries:
                return list(self.records.after(0, 10_000))
            self.digest.add(entries, dropped)

    def of(self, request: RequestRecord) -> Iterator[tuple[str, str, str, str]]:
        """The messages of a request: leg, way, kind, method."""
        for one in self.all():
            if isinstance(one, MessageRecord) and one.request == request.request:
                yield one.leg, one.way, one.kind, one.method

    def request(self, method: str) -> RequestRecord:
        (found,) = (one for one in self.all() if isinstance(one, RequestRecord) and one.method == method)
        return found


@pytest.mark.parametrize("down", ["pipe", "http"])
@pytest.mark.parametrize("up", ["pipe", "http"])
def test_all_messages_of_a_request_are_found(down: str, up: str) -> None:
    seen = Seen()
    world = seen.world
    client = connect(world, down, up)
    client.request('"one"', "tools/call", CALL)
    sent = world.take_sent("tools/call")
    token = sent.frame["params"]["_meta"]["progressToken"]
    progress = (
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}'
    )
    world.send(sent.channel, progress.encode())
    world.send(sent.channel, b'{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}')
    question = next(
        frame
        for channel in {1, *range(2, 60)}
        for frame in _frames(world, channel)
        if frame.get("method", "")[:8] == "sampling"
    )
    client.send(b'{"jsonrpc":"2.0","id":%d,"result":{"role":"user"}}' % question["id"])
    world.wait(0.25)
    world.answer(sent, '{"content":[]}')
    request = seen.request("tools/call")
    assert (request.state, request.outcome, request.ms, request.questions) == ("over", "result", 250.0, 1)
    assert (request.id, request.target, request.server) == ('"one"', "echo", up)
    assert [(one.server, one.ms, one.via) for one in request.attempts] == [(up, 250.0, up)]
    assert list(seen.of(request)) == [
        ("client", "in", "request", "tools/call"),
        ("server", "out", "request", "tools/call"),
        ("server", "in", "notification", "notifications/progress"),
        ("client", "out", "notification", "notifications/progress"),
        ("server", "in", "request", "sampling/createMessage"),
        ("client", "out", "request", "sampling/createMessage"),
        ("client", "in", "response", ""),
        ("server", "out", "response", ""),
        ("server", "in", "response", ""),
        ("client", "out", "response", ""),
    ]
    assert list(seen.of(seen.request("initialize"))) == [
        ("client", "in", "request", "initialize"),
        ("server", "out", "request", "initialize"),
        ("server", "in", "response", ""),
        ("client", "out", "response", ""),
        ("server", "out", "notification", "notifications/initialized"),
        ("client", "in", "notification", "notifications/initialized"),
    ]
    sessions = [one for one in seen.all() if isinstance(one, SessionRecord)]
    assert [(one.state, one.requests, one.open_requests) for one in sessions] == [("open", 1, 0)]


def _frames(world: Driver, channel: int) -> list[dict]:  # type: ignore[type-arg]
    return list(world.frames(channel))  # type: ignore[arg-type]
