"""Tests of era detection: a server's era follows from its answers, is found once, and no failure without evidence
changes it."""

from __future__ import annotations

import pytest
from driving import Client, Driver, driver, new_client, result
from isthmus.core.base.effects import Close, Dial, Join, Spawn
from isthmus.core.base.events import Cause, Connected, End
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.base.revisions import LATEST_MODERN, Era
from stateless_server import (
    DIED,
    META,
    SILENT,
    connect_child,
    discovered,
    discovery,
    fail,
    failure,
    modern_call,
    posts,
    refuse,
    refused,
)

LEGACY_ANSWER = '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'


def world_of(kind: Kind, **rest: object) -> tuple[Driver, Client]:
    """A server of unknown era, and a client that has sent nothing."""
    limits = rest.pop("limits", None)
    world = driver(ServerPlan(id="s", kind=kind, **rest), limits=limits)  # type: ignore[arg-type]
    return world, new_client(world, "http", "s")


def asked_to_initialize(kind: Kind) -> tuple[Driver, ChannelId]:
    """A server of unknown era that is sent `initialize`, and the channel of the client that waits for it."""
    world, client = world_of(kind)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    return world, channel


def begin_legacy(world: Driver, *, session: str | None = "S1") -> None:
    """The server answers `initialize`, and is ready."""
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER, session=session)
    world.acknowledge(world.take_sent("notifications/initialized"))
    if not isinstance(world.dials[-1].target, Spawn | Join):
        world.end(world.dials[-1].channel, refused(405))


def spawns(world: Driver) -> int:
    return sum(isinstance(dial.target, Spawn) for dial in world.every(Dial))


NOT_MODERN = {
    "unknown method, as it should be": (404, failure(-32601, id=1)),
    "unknown method with a success": (200, failure(-32601, id=1)),
    "another error with a success": (200, failure(-32602, id=1)),
    "not initialized": (400, failure(-32000, "Bad Request: Server not initialized")),
    "an id of its own": (400, failure(-32600, "Bad Request: Missing session ID", id="server-error")),
    "an unsupported version, and nothing more": (400, failure(-32022)),
    "an unsupported version, none supported": (400, failure(-32022, data={"supported": []})),
    "an unsupported version, no texts": (400, failure(-32022, data={"supported": [1, 2]})),
    "an unsupported version, old ones": (400, failure(-32022, data={"supported": ["2025-11-25"]})),
    "no such page": (404, b"<html>not found</html>"),
    "no such method": (405, b""),
    "no JSON": (400, b"nope"),
    "nothing to say": (202, b""),
    "a result that is none": (200, b'{"jsonrpc":"2.0","id":1,"result":{"ok":true}}'),
    "only old revisions": (
        200,
        b'{"jsonrpc":"2.0","id":1,"result":' + discovery(revisions=("2025-11-25",)).encode() + b"}",
    ),
    "a page with a success": (200, b"<html>hello</html>"),
}


def give(world: Driver, received: object, status: int, body: bytes) -> None:
    """A response to a POST."""
    channel = received.channel  # type: ignore[attr-defined]
    if status == 200:
        world.open(channel, Connected())
        world.send(channel, body)
        world.end(channel)
    else:
        world.end(channel, SILENT if status == 202 else refused(status, body))


@pytest.mark.parametrize("case", NOT_MODERN)
def test_a_server_that_does_not_know_discover_gets_a_handshake(case: str) -> None:
    """Every answer to `server/discover` that only a server with sessions gives is followed by `initialize`, and
    remembered."""
    world, client = world_of(Kind.HTTP)
    channel = modern_call(client)
    give(world, world.take_sent("server/discover"), *NOT_MODERN[case])
    begin_legacy(world)
    received = world.take_sent("tools/list")
    assert "_meta" not in received.frame.get("params", {})
    world.answer(received, '{"tools":[]}')
    assert world.only_message(channel)["result"]["tools"] == []
    modern_call(new_client(world, "http", "s", "another"), "2")
    assert not world.was_sent("server/discover")
    begin_legacy(world)


NO_EVIDENCE = {
    **{str(status): refused(status) for status in (301, 302, 307, 308, 401, 403, 408, 429, 500, 502, 503, 504)},
    "500 with an error": refused(500, failure(-32601, id=1)),
    "unreachable": Cause(End.UNREACHABLE, "no route"),
    "broken": Cause(End.BROKEN, "reset"),
    "timed out": Cause(End.TIMED_OUT, "too slow"),
    "hung up": Cause(End.GONE),
}


@pytest.mark.parametrize("case", NO_EVIDENCE)
@pytest.mark.parametrize("known", ["nothing", "modern"])
def test_a_failure_without_evidence_reaches_the_client_and_changes_nothing(case: str, known: str) -> None:
    """A failure that could have any cause reaches the client, no handshake is tried, and a known era stays."""
    world, client = world_of(Kind.HTTP)
    if known == "modern":
        channel = modern_call(new_client(world, "http", "s", "earlier"))
        discovered(world)
        world.answer(
            world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'
        )
        assert "result" in world.only_message(channel)
    channel = modern_call(client)
    world.end(world.take_sent("server/discover").channel, NO_EVIDENCE[case])
    assert "error" in world.only_message(channel)
    assert not world.was_sent("initialize")
    world.wait(60.0)
    channel = modern_call(client, "2")
    discovered(world)
    received = world.take_sent("tools/list")
    world.answer(received, '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert "result" in world.only_message(channel)
    assert not world.was_sent("initialize")


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_errors_that_only_a_modern_server_has_are_no_reason_to_fall_back(code: int) -> None:
    """400 with -32020, -32021, or -32022 and a revision of the stateless era comes from a server of that era."""
    world, client = world_of(Kind.HTTP)
    channel = modern_call(client)
    data = {"supported": [LATEST_MODERN], "requested": LATEST_MODERN, "requiredCapabilities": {}}
    refuse(world, world.take_sent("server/discover"), 400, failure(code, data=data, id=1))
    if code == -32022:  # it names a revision, and is asked once in that
        refuse(world, world.take_sent("server/discover"), 400, failure(code, data=data, id=2))
    assert "error" in world.only_message(channel)
    assert not world.was_sent("initialize")
    assert not world.was_sent("server/discover")  # the same probe is not repeated


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize(
    "code, data, status",
    [
        (-32022, {"supported": [LATEST_MODERN], "requested": "2025-11-25"}, 400),
        (-32601, None, 404),
        (-32020, None, 400),
        (-32021, None, 400),
        (-32602, {"missing": [f"{META}protocolVersion"]}, 400),
    ],
)
def test_a_server_that_refuses_initialize_as_a_modern_one_is_sent_discover(
    kind: Kind, code: int, data: object, status: int
) -> None:
    """A server of the stateless era serves a client with a session: its error to `initialize` shows its era."""
    world, client = world_of(kind)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    fail(world, world.take_sent("initialize"), code, data=data, status=status)
    discovered(world)
    assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"
    new_client(world, "http", "s").initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    assert world.was_sent("server/discover"), "its era is known"


@pytest.mark.parametrize(
    "code, data",
    [
        (-32602, None),
        (-32600, None),
        (-32000, None),
        (-32603, None),
        (-32022, None),
        (-32022, {"supported": ["2024-11-05"]}),
    ],
)
@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("is_modern", [True, False])
def test_a_server_that_refuses_initialize_in_words_of_its_own_is_sent_discover_once(
    kind: Kind, code: int, data: object, is_modern: bool
) -> None:
    """The client gets both errors if it refuses that as well."""
    world, channel = asked_to_initialize(kind)
    fail(world, world.take_sent("initialize"), code, "not today", data=data, status=400)
    if kind is Kind.PIPE:
        connect_child(world)
    if is_modern:
        discovered(world)
        assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"
        return
    fail(world, world.take_sent("server/discover"), -32601, "what?", status=404)
    told = world.only_message(channel)["error"]
    assert told["code"] == code
    assert told["message"] == "not today; asked with server/discover: what?"
    assert not world.unread


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("is_modern", [True, False])
def test_a_revision_without_initialize_is_not_agreed_on_in_initialize(kind: Kind, is_modern: bool) -> None:
    """A server that names one is sent `server/discover`."""
    world, channel = asked_to_initialize(kind)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER.replace("2025-11-25", LATEST_MODERN), session="S1")
    if kind is Kind.PIPE:
        connect_child(world)
    if is_modern:
        discovered(world)
        assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"
        return
    fail(world, world.take_sent("server/discover"), -32601, "what?", status=404)
    assert LATEST_MODERN in world.only_message(channel)["error"]["message"]
    assert not world.unread


def test_a_client_that_names_a_revision_without_initialize_gets_the_latest_that_has_it() -> None:
    world, client = world_of(Kind.HTTP)
    client.initialize(f'{{"protocolVersion":"{LATEST_MODERN}","capabilities":{{}}}}')
    assert world.take_sent("initialize").frame["params"]["protocolVersion"] == "2025-11-25"


# --- Processes --------------------------------------------------------------------------------------------------------


def stdio_no(world: Driver, how: str) -> None:
    """A process does not know `server/discover`."""
    child = connect_child(world)
    received = world.take_sent("server/discover")
    if how == "exits":
        world.end(child, DIED)
    elif how == "silent":
        world.wait(20.0)
    elif how == "nonsense":
        world.answer(received, '{"ok":true}')
    elif how == "old revisions":
        world.answer(received, discovery(revisions=("2025-11-25", "2024-11-05")))
    else:
        fail(world, received, int(how))


@pytest.mark.parametrize(
    "how", ["-32601", "-32602", "-32600", "-32000", "exits", "silent", "nonsense", "old revisions"]
)
def test_a_process_that_does_not_know_discover_gives_way_to_a_new_one(how: str) -> None:
    """Any error, an unusable result, an exit and silence mean sessions; the probed process is not used again."""
    world, client = world_of(Kind.PIPE)
    channel = modern_call(client)
    stdio_no(world, how)
    probed, second = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)]
    assert probed in world.over
    world.open(second, Connected())
    begin_legacy(world)
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in world.only_message(channel)
    assert spawns(world) == 2
    modern_call(new_client(world, "http", "s", "another"), "2")
    connect_child(world)
    assert world.was_sent("initialize"), "the era is remembered"


def test_a_late_answer_to_the_probe_is_dropped() -> None:
    """Corner case 98: a late answer of a probed process that was given up reaches no client."""
    world, client = world_of(Kind.PIPE)
    channel = modern_call(client)
    child = connect_child(world)
    received = world.take_sent("server/discover")
    world.wait(20.0)
    assert world.send(child, b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (received.id, discovery().encode())) == []
    connect_child(world)
    begin_legacy(world)
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in world.only_message(channel)


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("answers", ["then", "never", "no"])
def test_a_slow_start_is_probed_once_more(kind: Kind, answers: str) -> None:
    """Corner case 52: a server that is silent to the probe, and refuses `initialize` as only one of the stateless era
    does, is probed again where it has just answered. At most two probes and one `initialize` in all."""
    world, client = world_of(kind)
    channel = modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    world.take_sent("server/discover")
    world.wait(20.0)
    if kind is Kind.PIPE:
        connect_child(world)
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    fail(world, world.take_sent("initialize"), -32022, data=data, status=400)
    again = world.take_sent("server/discover")
    if answers == "then":
        world.answer(again, discovery())
        world.answer(
            world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}'
        )
        assert "result" in world.only_message(channel)
    elif answers == "never":
        world.wait(20.0)
        assert "error" in world.only_message(channel)
    else:
        fail(world, again, -32601, status=404)
        assert "error" in world.only_message(channel)
    assert not world.unread


def test_silence_alone_does_not_overwrite_a_known_era() -> None:
    """A failure never overwrites a known era: a process known to have no sessions that dies once on the probe is probed
    again the next time."""
    world, client = world_of(Kind.PIPE)
    modern_call(client)
    discovered(world)
    world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    for number in (2, 3):
        modern_call(new_client(world, "http", "s", f"p{number}"), str(number))
        child = connect_child(world)
        world.take_sent("server/discover")
        world.end(child, DIED)
        connect_child(world)
        begin_legacy(world)
    modern_call(new_client(world, "http", "s", "p4"), "4")
    connect_child(world)
    assert world.was_sent("initialize"), "after two deaths its era changes"


def test_a_dead_server_denies_nothing() -> None:
    """An era counts as denied only once the server has answered in the other: when both fail, the era stays unknown."""
    world, client = world_of(Kind.PIPE)
    modern_call(client)
    world.end(connect_child(world), DIED)
    world.end(connect_child(world), DIED)
    world.wait(60.0)
    modern_call(client, "2")
    connect_child(world)
    assert world.was_sent("server/discover")


def test_over_http_silence_is_no_denial() -> None:
    """A probe that times out over HTTP serves this client with a handshake, and leaves the server's era unknown."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    probe = world.take_sent("server/discover")
    world.wait(20.0)
    assert Close in {type(effect) for effect in world.log if getattr(effect, "channel", None) == probe.channel}
    begin_legacy(world)
    modern_call(new_client(world, "http", "s", "another"), "2")
    assert world.was_sent("server/discover")


def test_a_silent_server_of_known_modern_era_gets_no_handshake() -> None:
    """A timeout over HTTP is no evidence: if the era is known, the client gets the error and no handshake is tried."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    discovered(world)
    world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    channel = modern_call(new_client(world, "http", "s", "another"), "2")
    world.take_sent("server/discover")
    world.wait(20.0)
    assert "error" in world.only_message(channel)
    assert not world.was_sent("initialize")


def test_a_denied_era_is_not_probed_before_it_expires() -> None:
    """A denied era is probed again after its time, as a server may have been updated, and no sooner."""
    world, client = world_of(Kind.HTTP, limits=Limits(server_era_ttl_s=100.0, session_idle_ttl_s=10.0))
    modern_call(client)
    refuse(world, world.take_sent("server/discover"), 404)
    begin_legacy(world)
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    world.wait(50.0)
    modern_call(client, "2")
    begin_legacy(world)
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    world.wait(60.0)
    modern_call(client, "3")
    discovered(world)
    assert world.was_sent("tools/list")


def test_warm_processes_are_used_for_either_era() -> None:
    """A warm process has received nothing: one takes the probe, and another the handshake."""
    world, client = world_of(Kind.PIPE, spares=2)
    channel = modern_call(client)
    stdio_no(world, "-32601")
    connect_child(world)
    begin_legacy(world)
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in world.only_message(channel)
    warm = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][2:]
    assert len(warm) == 2
    for process in warm:
        world.open(process, Connected())
    modern_call(new_client(world, "http", "s", "another"), "2")
    assert world.take_sent("initialize").channel == warm[0]


# --- Servers of both eras ---------------------------------------------------------------------------------------------


def greet_without_session(world: Driver) -> None:
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER, session=None)


def test_a_server_of_both_eras_whose_handshake_begins_no_session_is_used_as_stateless() -> None:
    """A server without session can neither ask nor notify. In the stateless era it can, also for clients with
    sessions."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    assert not world.messages(channel), "the client waits for the outcome"
    assert not world.was_sent("notifications/initialized")
    discovered(world, '{"tools":{}}')
    assert world.only_message(channel)["result"]["protocolVersion"] == "2025-11-25"
    (status,) = world.engine.report()
    assert status.eras == {"handshake": "2025-11-25", "stateless": "2026-07-28"}, "it has answered in both"
    assert (status.era, status.revision) == ("stateless", "2026-07-28")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    client.request("1", "tools/list")
    assert f"{META}protocolVersion" in world.take_sent("tools/list").frame["params"]["_meta"]
    new_client(world, "http", "s").initialize()
    assert world.was_sent("server/discover"), "the next client begins so"
    assert not world.was_sent("initialize")


GO_ON = {
    "unknown": refused(404, failure(-32601, id=1)),
    "bad request": refused(400),
    "overloaded": refused(503),
    "credentials": refused(401),
    "broken": Cause(End.BROKEN),
    "nothing": SILENT,
}


@pytest.mark.parametrize("case", GO_ON)
def test_a_handshake_without_session_goes_on_if_the_server_is_not_stateless(case: str) -> None:
    """The handshake goes on whatever the answer to the one probe, and no later client causes another."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    world.end(world.take_sent("server/discover").channel, GO_ON[case])
    world.acknowledge(world.take_sent("notifications/initialized"))
    assert world.only_message(channel)["result"]["serverInfo"] == {"name": "s", "version": "1"}
    new_client(world, "http", "s").initialize()
    greet_without_session(world)
    assert world.was_sent("notifications/initialized")
    assert not world.was_sent("server/discover"), "one probe for each known era"
    assert len([post for post in posts(world) if b'"initialize"' in post.message]) == 2


@pytest.mark.parametrize("answer", ["late", "error", "nonsense"])
def test_a_probe_after_the_handshake_is_not_waited_for_longer(answer: str) -> None:
    """After silence, an error with a success status or an unusable result the handshake goes on; late answers are
    dropped."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    received = world.take_sent("server/discover")
    if answer == "late":
        world.wait(20.0)
        assert world.send(received.channel, result(str(received.id), discovery())) == []
    elif answer == "error":
        fail(world, received, -32601)
    else:
        world.answer(received, "[]")
    world.acknowledge(world.take_sent("notifications/initialized"))
    assert "result" in world.only_message(channel)


def test_a_probe_after_the_handshake_is_repeated_when_the_era_expires() -> None:
    """The probe is repeated when the known era expires."""
    world, client = world_of(Kind.HTTP, limits=Limits(server_era_ttl_s=100.0))
    client.initialize()
    greet_without_session(world)
    refuse(world, world.take_sent("server/discover"), 503)
    world.acknowledge(world.take_sent("notifications/initialized"))
    world.wait(100.0)
    new_client(world, "http", "s").initialize()
    greet_without_session(world)
    assert world.was_sent("server/discover")


@pytest.mark.parametrize("era", list(Era))
def test_a_server_whose_era_is_configured_is_not_probed(era: Era) -> None:
    """A configured era is final: no probe and no fallback."""
    world, client = world_of(Kind.HTTP, era=era)
    client.initialize()
    if era is Era.HANDSHAKE:
        greet_without_session(world)
        assert world.was_sent("notifications/initialized")
        assert not world.was_sent("server/discover")
    else:
        refuse(world, world.take_sent("server/discover"), 404)
        assert not world.was_sent("initialize")


def test_a_server_with_sessions_is_not_probed() -> None:
    """A session lets the server ask and notify: each client is served in its own era."""
    world, client = world_of(Kind.HTTP)
    client.initialize()
    begin_legacy(world, session="S1")
    assert not world.unread


def test_a_known_modern_server_without_session_serves_both() -> None:
    """A server that is known to have no sessions is sent `server/discover` after the handshake."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    discovered(world)
    world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    channel = new_client(world, "http", "s").initialize()
    greet_without_session(world)
    discovered(world)
    assert "result" in world.only_message(channel)


# --- HTTP+SSE ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_modern_client", [False, True])
@pytest.mark.parametrize("status", [400, 404, 405])
def test_an_http_sse_server_is_found_in_the_end(is_modern_client: bool, status: int) -> None:
    """A server that refuses `server/discover` and `initialize` is tried as HTTP+SSE, for either client."""
    world, client = world_of(Kind.HTTP, may_fall_back=True)
    channel = modern_call(client) if is_modern_client else client.initialize()
    if is_modern_client:
        refuse(world, world.take_sent("server/discover"), status)
    refuse(world, world.take_sent("initialize"), status)
    assert isinstance(world.dials[-1].target, Join)
    connect_child(world)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER)
    world.take_sent("notifications/initialized")
    if is_modern_client:
        world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    assert "result" in world.only_message(channel)
    modern_call(new_client(world, "http", "s", "another"), "2")
    assert isinstance(world.dials[-1].target, Join), "its era is known"


def test_an_http_sse_server_may_be_replaced_by_a_stateless_one() -> None:
    """A server that was replaced by one of the stateless era is tried once at the old address, then detected anew."""
    world, client = world_of(Kind.HTTP, may_fall_back=True)
    modern_call(client)
    refuse(world, world.take_sent("server/discover"), 405)
    refuse(world, world.take_sent("initialize"), 405)
    child = connect_child(world)
    world.answer(world.take_sent("initialize"), LEGACY_ANSWER)
    world.take_sent("notifications/initialized")
    world.answer(world.take_sent("tools/list"), '{"tools":[]}')
    world.end(child, Cause(End.GONE))
    modern_call(client, "2")
    world.end(world.dials[-1].channel, refused(405))
    world.wait(86_500.0)
    channel = modern_call(new_client(world, "http", "s", "another"), "3")
    discovered(world)
    world.answer(world.take_sent("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert world.only_message(channel)["result"]["tools"] == []
