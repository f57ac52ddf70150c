"""Which era a server speaks is found out once, by what it says; what says nothing of that changes nothing."""

from __future__ import annotations

import pytest
from driving import Client, Driver, driver, newcomer, result
from isthmus.core.base.effects import Cause, Close, Connected, Dial, End, Join, Spawn
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
    """A server nothing is known of, and a client that has said nothing."""
    limits = rest.pop("limits", None)
    world = driver(ServerPlan(id="s", kind=kind, **rest), limits=limits)  # type: ignore[arg-type]
    return world, newcomer(world, "http", "s")


def begin_legacy(world: Driver, *, session: str | None = "S1") -> None:
    """The server answers `initialize`, and is ready."""
    world.answer(world.hear("initialize"), LEGACY_ANSWER, session=session)
    world.acknowledge(world.hear("notifications/initialized"))
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


def give(world: Driver, heard: object, status: int, body: bytes) -> None:
    """A response to a POST."""
    channel = heard.channel  # type: ignore[attr-defined]
    if status == 200:
        world.open(channel, Connected())
        world.say(channel, body)
        world.end(channel)
    else:
        world.end(channel, SILENT if status == 202 else refused(status, body))


@pytest.mark.parametrize("case", NOT_MODERN)
def test_who_does_not_know_discover_is_greeted_with_a_handshake(case: str) -> None:
    """What only a server with sessions says to `server/discover` is followed by `initialize`, and remembered."""
    world, client = world_of(Kind.HTTP)
    channel = modern_call(client)
    give(world, world.hear("server/discover"), *NOT_MODERN[case])
    begin_legacy(world)
    heard = world.hear("tools/list")
    assert "_meta" not in heard.frame.get("params", {})
    world.answer(heard, '{"tools":[]}')
    assert world.said(channel)["result"]["tools"] == []
    modern_call(newcomer(world, "http", "s", "another"), "2")
    assert not world.hears("server/discover")
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
def test_what_is_no_evidence_is_told_and_changes_nothing(case: str, known: str) -> None:
    """A failure that could have any cause is surfaced, no handshake is tried, what was known stays."""
    world, client = world_of(Kind.HTTP)
    if known == "modern":
        channel = modern_call(newcomer(world, "http", "s", "earlier"))
        discovered(world)
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
        assert "result" in world.said(channel)
    channel = modern_call(client)
    world.end(world.hear("server/discover").channel, NO_EVIDENCE[case])
    assert "error" in world.said(channel)
    assert not world.hears("initialize")
    world.wait(60.0)
    channel = modern_call(client, "2")
    discovered(world)
    heard = world.hear("tools/list")
    world.answer(heard, '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert "result" in world.said(channel)
    assert not world.hears("initialize")


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_errors_that_only_a_modern_server_has_are_no_reason_to_fall_back(code: int) -> None:
    """400 with -32020, -32021, or -32022 and a revision without sessions comes from a server that has none."""
    world, client = world_of(Kind.HTTP)
    channel = modern_call(client)
    data = {"supported": [LATEST_MODERN], "requested": LATEST_MODERN, "requiredCapabilities": {}}
    refuse(world, world.hear("server/discover"), 400, failure(code, data=data, id=1))
    if code == -32022:  # it names a revision, and is asked in that, once
        refuse(world, world.hear("server/discover"), 400, failure(code, data=data, id=2))
    assert "error" in world.said(channel)
    assert not world.hears("initialize")
    assert not world.hears("server/discover")  # nor is it asked the same again and again


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
def test_who_refuses_initialize_is_asked_to_introduce_itself(kind: Kind, code: int, data: object, status: int) -> None:
    """A server without sessions serves a client with one: what it says to `initialize` shows what it is."""
    world, client = world_of(kind)
    channel = client.initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    fail(world, world.hear("initialize"), code, data=data, status=status)
    discovered(world)
    assert world.said(channel)["result"]["protocolVersion"] == "2025-11-25"
    newcomer(world, "http", "s").initialize()
    if kind is Kind.PIPE:
        connect_child(world)
    assert world.hears("server/discover"), "it is known by now"


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
def test_who_refuses_initialize_for_another_reason_is_not_asked(code: int, data: object) -> None:
    """A server that has sessions may refuse one: its error is the client's to see."""
    world, client = world_of(Kind.PIPE)
    channel = client.initialize()
    connect_child(world)
    fail(world, world.hear("initialize"), code, "not today", data=data)
    assert world.said(channel)["error"]["message"] == "not today"
    assert spawns(world) == 1


# --- Processes --------------------------------------------------------------------------------------------------------


def stdio_no(world: Driver, how: str) -> None:
    """A process does not know `server/discover`."""
    child = connect_child(world)
    heard = world.hear("server/discover")
    if how == "exits":
        world.end(child, DIED)
    elif how == "silent":
        world.wait(20.0)
    elif how == "nonsense":
        world.answer(heard, '{"ok":true}')
    elif how == "old revisions":
        world.answer(heard, discovery(revisions=("2025-11-25", "2024-11-05")))
    else:
        fail(world, heard, int(how))


@pytest.mark.parametrize(
    "how", ["-32601", "-32602", "-32600", "-32000", "exits", "silent", "nonsense", "old revisions"]
)
def test_a_process_that_does_not_know_discover_gives_way_to_a_new_one(how: str) -> None:
    """Any error, an unusable result, an exit and silence mean sessions; the child that was asked is not used again."""
    world, client = world_of(Kind.PIPE)
    channel = modern_call(client)
    stdio_no(world, how)
    probed, second = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)]
    assert probed in world.over
    world.open(second, Connected())
    begin_legacy(world)
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert "result" in world.said(channel)
    assert spawns(world) == 2
    modern_call(newcomer(world, "http", "s", "another"), "2")
    connect_child(world)
    assert world.hears("initialize"), "the verdict is remembered"


def test_a_late_answer_to_the_probe_is_dropped() -> None:
    """Corner case 98: what the probed process says after it was given up reaches nobody."""
    world, client = world_of(Kind.PIPE)
    channel = modern_call(client)
    child = connect_child(world)
    heard = world.hear("server/discover")
    world.wait(20.0)
    assert world.say(child, b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (heard.id, discovery().encode())) == []
    connect_child(world)
    begin_legacy(world)
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert "result" in world.said(channel)


@pytest.mark.parametrize("kind", [Kind.PIPE, Kind.HTTP])
@pytest.mark.parametrize("answers", ["then", "never", "no"])
def test_a_slow_start_is_asked_once_more(kind: Kind, answers: str) -> None:
    """Corner case 52: silent to the probe, and `initialize` refused as only a server without sessions does: it is asked
    again where it has just answered. At most two probes and one `initialize` in all."""
    world, client = world_of(kind)
    channel = modern_call(client)
    if kind is Kind.PIPE:
        connect_child(world)
    world.hear("server/discover")
    world.wait(20.0)
    if kind is Kind.PIPE:
        connect_child(world)
    data = {"supported": [LATEST_MODERN], "requested": "2025-11-25"}
    fail(world, world.hear("initialize"), -32022, data=data, status=400)
    again = world.hear("server/discover")
    if answers == "then":
        world.answer(again, discovery())
        world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
        assert "result" in world.said(channel)
    elif answers == "never":
        world.wait(20.0)
        assert "error" in world.said(channel)
    else:
        fail(world, again, -32601, status=404)
        assert "error" in world.said(channel)
    assert not world.heard


def test_silence_alone_denies_nothing_that_was_heard() -> None:
    """A failure never overwrites a verdict: a process known to have no sessions that dies once on the probe is asked
    the same the next time."""
    world, client = world_of(Kind.PIPE)
    modern_call(client)
    discovered(world)
    world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    for number in (2, 3):
        modern_call(newcomer(world, "http", "s", f"p{number}"), str(number))
        child = connect_child(world)
        world.hear("server/discover")
        world.end(child, DIED)
        connect_child(world)
        begin_legacy(world)
    modern_call(newcomer(world, "http", "s", "p4"), "4")
    connect_child(world)
    assert world.hears("initialize"), "twice is no accident"


def test_a_dead_server_denies_nothing() -> None:
    """An era counts as denied only once the other was spoken: when both fail, nothing is known."""
    world, client = world_of(Kind.PIPE)
    modern_call(client)
    world.end(connect_child(world), DIED)
    world.end(connect_child(world), DIED)
    world.wait(60.0)
    modern_call(client, "2")
    connect_child(world)
    assert world.hears("server/discover")


def test_over_http_silence_is_no_denial() -> None:
    """A probe that times out over HTTP serves this client with a handshake, and leaves open what the server is."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    probe = world.hear("server/discover")
    world.wait(20.0)
    assert Close in {type(effect) for effect in world.log if getattr(effect, "channel", None) == probe.channel}
    begin_legacy(world)
    modern_call(newcomer(world, "http", "s", "another"), "2")
    assert world.hears("server/discover")


def test_a_silent_server_that_has_no_sessions_is_not_greeted_with_one() -> None:
    """Over HTTP a time-out is no evidence: where the server is known, its client learns of it, no more."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    discovered(world)
    world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    channel = modern_call(newcomer(world, "http", "s", "another"), "2")
    world.hear("server/discover")
    world.wait(20.0)
    assert "error" in world.said(channel)
    assert not world.hears("initialize")


def test_a_denial_is_believed_for_a_day() -> None:
    """A "no" is asked again after its time, for a server may have been updated, and no sooner."""
    world, client = world_of(Kind.HTTP, limits=Limits(verdict_ttl_s=100.0, session_idle_ttl_s=10.0))
    modern_call(client)
    refuse(world, world.hear("server/discover"), 404)
    begin_legacy(world)
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    world.wait(50.0)
    modern_call(client, "2")
    begin_legacy(world)
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    world.wait(60.0)
    modern_call(client, "3")
    discovered(world)
    assert world.hears("tools/list")


def test_spare_processes_are_spoken_to_in_either_era() -> None:
    """A spare process has not been spoken to: it takes the probe, and another the handshake."""
    world, client = world_of(Kind.PIPE, spares=2)
    channel = modern_call(client)
    stdio_no(world, "-32601")
    connect_child(world)
    begin_legacy(world)
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert "result" in world.said(channel)
    spares = [dial.channel for dial in world.every(Dial) if isinstance(dial.target, Spawn)][2:]
    assert len(spares) == 2
    for spare in spares:
        world.open(spare, Connected())
    modern_call(newcomer(world, "http", "s", "another"), "2")
    assert world.hear("initialize").channel == spares[0]


# --- Servers of both eras ---------------------------------------------------------------------------------------------


def greet_without_session(world: Driver) -> None:
    world.answer(world.hear("initialize"), LEGACY_ANSWER, session=None)


def test_a_server_of_both_eras_whose_handshake_begins_no_session_is_used_without_one() -> None:
    """Without a session it cannot ask or tell anything; in its modern era it can, for clients with sessions too."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    assert not world.messages(channel), "the client waits for the outcome"
    assert not world.hears("notifications/initialized")
    discovered(world, '{"tools":{}}')
    assert world.said(channel)["result"]["protocolVersion"] == "2025-11-25"
    (status,) = world.engine.report()
    assert status.eras == {"handshake": "2025-11-25", "stateless": "2026-07-28"}, "it has answered in both"
    assert (status.era, status.revision) == ("stateless", "2026-07-28")
    client.session = world.sent[channel][-1].session
    client.notify("notifications/initialized")
    client.request("1", "tools/list")
    assert f"{META}protocolVersion" in world.hear("tools/list").frame["params"]["_meta"]
    newcomer(world, "http", "s").initialize()
    assert world.hears("server/discover"), "the next client begins so"
    assert not world.hears("initialize")


GO_ON = {
    "unknown": refused(404, failure(-32601, id=1)),
    "bad request": refused(400),
    "overloaded": refused(503),
    "credentials": refused(401),
    "broken": Cause(End.BROKEN),
    "nothing": SILENT,
}


@pytest.mark.parametrize("case", GO_ON)
def test_a_server_without_session_that_cannot_do_without_a_handshake_keeps_the_one_it_answered(case: str) -> None:
    """Whatever is said to that one question, the handshake goes on where it stood, and no client asks it again."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    world.end(world.hear("server/discover").channel, GO_ON[case])
    world.acknowledge(world.hear("notifications/initialized"))
    assert world.said(channel)["result"]["serverInfo"] == {"name": "s", "version": "1"}
    newcomer(world, "http", "s").initialize()
    greet_without_session(world)
    assert world.hears("notifications/initialized")
    assert not world.hears("server/discover"), "one question a verdict"
    assert len([post for post in posts(world) if b'"initialize"' in post.message]) == 2


@pytest.mark.parametrize("answer", ["late", "error", "nonsense"])
def test_that_question_is_not_waited_for_longer_than_a_probe(answer: str) -> None:
    """Silence, an error with a success and an unusable result: the handshake goes on, late words are dropped."""
    world, client = world_of(Kind.HTTP)
    channel = client.initialize()
    greet_without_session(world)
    heard = world.hear("server/discover")
    if answer == "late":
        world.wait(20.0)
        assert world.say(heard.channel, result(str(heard.id), discovery())) == []
    elif answer == "error":
        fail(world, heard, -32601)
    else:
        world.answer(heard, "[]")
    world.acknowledge(world.hear("notifications/initialized"))
    assert "result" in world.said(channel)


def test_the_question_is_asked_again_after_a_day() -> None:
    """A verdict has its time; so has the question."""
    world, client = world_of(Kind.HTTP, limits=Limits(verdict_ttl_s=100.0))
    client.initialize()
    greet_without_session(world)
    refuse(world, world.hear("server/discover"), 503)
    world.acknowledge(world.hear("notifications/initialized"))
    world.wait(100.0)
    newcomer(world, "http", "s").initialize()
    greet_without_session(world)
    assert world.hears("server/discover")


@pytest.mark.parametrize("era", list(Era))
def test_a_server_whose_era_is_forced_is_not_asked(era: Era) -> None:
    """The configuration is the last word: no probe, no turning."""
    world, client = world_of(Kind.HTTP, era=era)
    client.initialize()
    if era is Era.HANDSHAKE:
        greet_without_session(world)
        assert world.hears("notifications/initialized")
        assert not world.hears("server/discover")
    else:
        refuse(world, world.hear("server/discover"), 404)
        assert not world.hears("initialize")


def test_a_server_with_sessions_is_not_asked() -> None:
    """A session is a way to ask and to tell: each client is served in its own era."""
    world, client = world_of(Kind.HTTP)
    client.initialize()
    begin_legacy(world, session="S1")
    assert not world.heard


def test_a_known_modern_server_without_session_serves_both() -> None:
    """That it has no sessions is known already: it is not asked whether, but greeted so."""
    world, client = world_of(Kind.HTTP)
    modern_call(client)
    discovered(world)
    world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    channel = newcomer(world, "http", "s").initialize()
    greet_without_session(world)
    discovered(world)
    assert "result" in world.said(channel)


# --- HTTP+SSE ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_modern_client", [False, True])
@pytest.mark.parametrize("status", [400, 404, 405])
def test_an_http_sse_server_is_found_in_the_end(is_modern_client: bool, status: int) -> None:
    """`server/discover` refused, `initialize` refused: then it is HTTP+SSE, for either client."""
    world, client = world_of(Kind.HTTP, may_fall_back=True)
    channel = modern_call(client) if is_modern_client else client.initialize()
    if is_modern_client:
        refuse(world, world.hear("server/discover"), status)
    refuse(world, world.hear("initialize"), status)
    assert isinstance(world.dials[-1].target, Join)
    connect_child(world)
    world.answer(world.hear("initialize"), LEGACY_ANSWER)
    world.hear("notifications/initialized")
    if is_modern_client:
        world.answer(world.hear("tools/list"), '{"tools":[]}')
    assert "result" in world.said(channel)
    modern_call(newcomer(world, "http", "s", "another"), "2")
    assert isinstance(world.dials[-1].target, Join), "it is known by now"


def test_what_was_http_sse_may_lose_its_sessions() -> None:
    """The server was replaced by one without sessions: the old address is tried once, then everything anew."""
    world, client = world_of(Kind.HTTP, may_fall_back=True)
    modern_call(client)
    refuse(world, world.hear("server/discover"), 405)
    refuse(world, world.hear("initialize"), 405)
    child = connect_child(world)
    world.answer(world.hear("initialize"), LEGACY_ANSWER)
    world.hear("notifications/initialized")
    world.answer(world.hear("tools/list"), '{"tools":[]}')
    world.end(child, Cause(End.GONE))
    modern_call(client, "2")
    world.end(world.dials[-1].channel, refused(405))
    world.wait(86_500.0)
    channel = modern_call(newcomer(world, "http", "s", "another"), "3")
    discovered(world)
    world.answer(world.hear("tools/list"), '{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}')
    assert world.said(channel)["result"]["tools"] == []
