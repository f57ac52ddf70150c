"""Tests of `isthmus conform --client`: the violations of a client are found, minimized, reported and replayed."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conforming import Run
from isthmus.app.config.settings import Transport as Named
from isthmus.app.conform.generate.deeds import KINDS, DeedContext, kinds_for
from isthmus.app.conform.script.behaviour import Behaviour, Deed, Line, Script, When, result_of
from isthmus.app.conform.script.client_survey import ClientSurvey
from isthmus.app.conform.script.steps import REVISIONS, decoded
from isthmus.app.conform.script.survey import Played
from isthmus.app.conform.search.client_trial import ClientTarget, client_trial
from isthmus.app.conform.servers import ledger as ledger_module
from isthmus.app.conform.servers.client_process import for_server, for_url
from isthmus.app.conform.servers.duplex import ServerConnections
from isthmus.app.conform.servers.http import HttpSessions, Server
from isthmus.app.conform.servers.http_connections import HttpConnections
from isthmus.app.conform.servers.http_request import BODY_MAX_BYTES, Request
from isthmus.app.conform.servers.ledger import Ledger
from isthmus.app.conform.servers.sse import SseChannel
from isthmus.app.conform.servers.stdio import PipeListener
from isthmus.app.conform.servers.streamable_http import Channel
from isthmus.app.conform.verdict.clients import CLIENT_CHANCES, judge_client
from isthmus.app.conform.verdict.report import Recorded, decode_record
from isthmus.app.conform.verdict.servers import CLIENT_RULES, violations_of
from isthmus.core.oracle.observations import Head, Role, Said, Transport
from isthmus.transports.stdio.server_process import ChildSpec

CLIENT = (sys.executable, "-S", str(Path(__file__).parents[1] / "faulty_client.py"))
QUICK = ("--client", "--revision", "2025-06-18", "--log-level", "error", "--timeout", "1.5")


ENDS: dict[str, Named] = {"{server}": "auto", "{url}": "auto", "sse+{url}": "sse", "ws+{url}": "websocket"}
"""The placeholder by which the client gets its server → the transport that our end speaks."""
IS_THOROUGH = bool(os.environ.get("THOROUGH"))
RECORDED_ENDS = list(ENDS) if IS_THOROUGH else ["{server}", "ws+{url}"]
"""A record does not depend on the transport. With THOROUGH set, each has one."""


def command(fault: str, end: str) -> tuple[str, ...]:
    return ("--transport", ENDS[end], "--", *CLIENT, fault, end.removeprefix("ws+"))


def write_record(rule: str, *deeds: Deed) -> None:
    Path("found.jsonl").write_bytes(msgspec.json.encode(Recorded(rule, "", "", Behaviour("2025-06-18", deeds))) + b"\n")


# --- Clients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_a_good_client_passes_whatever_is_done_to_it(end: str) -> None:
    """Each kind of deed occurs once."""
    spec = ChildSpec((*CLIENT, "none", end.removeprefix("ws+")))
    trial = client_trial(ClientTarget(spec, "2025-06-18", 10.0, ENDS[end]))
    transport = {"{url}": Transport.HTTP, "sse+{url}": Transport.EVENTS}.get(end, Transport.PIPE)
    requests = ("initialize", "tools/call")
    survey = ClientSurvey("2025-06-18", transport, requests, requests, {"roots": {}}, ("write",))
    tried: set[str] = set()
    for name in ("plain", "question", "unknown method", "garbage", "odd answer", "answer twice", "cut", "late answer"):
        deeds = tuple(KINDS[name].make(DeedContext(survey, lambda values: values[-1])))
        behaviour = Behaviour("2025-06-18", deeds, has_stream=False)
        played = trial.play(behaviour)
        assert trial.judge(behaviour, played) == [], name
        tried |= trial.chances(behaviour, played)
    assert {"unanswered", "response-twice", "initialize-first", "error-shape"} <= tried


@pytest.mark.parametrize(
    "fault, end, rule",
    [
        ("greeting", "{server}", "initialize-params"),
        ("forgetful", "{url}", "session-id-missing"),
        ("old", "{url}", "version-header"),
    ],
)
def test_a_fault_is_found_and_made_small(fault: str, end: str, rule: str, conform: Run) -> None:
    arguments = ("--only", rule, "--examples", "2", "--strict", *QUICK)
    code, out, err = conform(*arguments, "--record", "found.jsonl", *command(fault, end))
    assert code == 1, out + err
    assert f"{rule} (" in out
    (record,) = decode_record(Path("found.jsonl").read_bytes(), Behaviour)
    assert record.rule == rule
    assert record.conversation.deeds == (), "it takes nothing odd"


@pytest.mark.parametrize(
    "fault, body, rule",
    [
        ("twice", '{"jsonrpc":"2.0","id":"$id","method":"ping"}', "response-twice"),
        ("deaf", '{"jsonrpc":"2.0","id":1,"method":"ping"}', "unanswered"),
        ("eager", "", "initialized-missing"),
    ],
)
@pytest.mark.parametrize("end", ENDS)
def test_what_a_client_answers_is_judged_and_played_again(
    fault: str, body: str, rule: str, end: str, conform: Run
) -> None:
    write_record(rule, Deed("tools/call", (Line(body), Line(when=When.ANSWERED))))
    code, out, _ = conform("--replay", "found.jsonl", *QUICK, *command(fault, end))
    assert (code, "1 rule broken" in out) == (1, True), out
    code, out, _ = conform("--replay", "found.jsonl", *QUICK, *command("none", end))
    assert (code, f"{rule}: not broken any more" in out) == (0, True), out


@pytest.mark.parametrize("end", RECORDED_ENDS)
def test_a_record_says_by_itself_that_it_is_of_a_client(end: str, replay: Run, conform: Run) -> None:
    """`isthmus replay` has no --client, and needs none."""
    write_record("response-twice", Deed("tools/call", (Line('{"jsonrpc":"2.0","id":"$id","method":"ping"}'),)))
    for fault, expected in (("twice", 1), ("none", 0)):
        arguments = ("--timeout", "1.5", *command(fault, end))
        assert replay("found.jsonl", *arguments)[0] == expected
        assert conform("--replay", "found.jsonl", *arguments)[0] == expected


def test_a_client_that_hangs_is_reported_and_is_no_failure(conform: Run) -> None:
    write_record("hangs")
    arguments = ("--replay", "found.jsonl", *QUICK, "--timeout", "0.5")
    code, out, _ = conform(*arguments, *command("sleepy", "{server}"))
    assert (code, "1 rule broken" in out) == (0, True), out
    assert "owed nothing" in out
    assert conform("--strict", *arguments, *command("sleepy", "{server}"))[0] == 1


def test_a_session_that_was_lost_is_not_named_again(conform: Run) -> None:
    """Every request with the id of a lost session gets 404; a new session is a connection of its own."""
    write_record("session-id-lost", Deed("tools/call", (), status=404, forgets=True))
    assert conform("--replay", "found.jsonl", *QUICK, *command("none", "{url}"))[0] == 0


# --- Wrong use ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("--client",), "got no command with --client"),
        (("--client", "http://h/"), "got no command with --client"),
        (("--client", "--safe", "--", "c"), "got --header or --safe with --client"),
        (("--client", "--transport", "sse", "--", "c", "{server}"), "got the transport sse with {server}"),
        (("--client", "--only", "server-early", "--", "c"), "got --only 'server-early', expected one of"),
        (("--only", "client-early", "--", "c"), "got --only 'client-early', expected one of"),
    ],
)
def test_wrong_use_is_reported(arguments: tuple[str, ...], complaint: str, conform: Run) -> None:
    code, out, err = conform(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("--", "/no/such/program", "{url}"), "the client cannot be started"),
        (
            ("--", sys.executable, "-S", "-c", "print('gone')", "{server}"),
            "says nothing to the server; its last words: gone",
        ),
    ],
)
def test_an_untestable_peer_is_reported(arguments: tuple[str, ...], complaint: str, conform: Run) -> None:
    code, _, err = conform("--client", *arguments)
    assert code == 1
    assert complaint in err


@pytest.mark.parametrize(
    "given, spoken, named",
    [
        ("sse+{url}", "auto", "--transport sse"),
        ("{url}", "sse", "--transport streamable_http"),
        ("{url}", "websocket", "--transport streamable_http or sse"),
    ],
)
def test_a_client_that_speaks_another_transport_gets_an_error(
    given: str, spoken: str, named: str, conform: Run
) -> None:
    fault = "none" if spoken != "websocket" else "over-http"
    code, _, err = conform(*QUICK, "--transport", spoken, "--", *CLIENT, fault, given)
    assert code == 1
    assert f"then it takes {named}" in err


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_a_refused_post_is_owed_nothing_more(revision: str) -> None:
    """The client of an HTTP+SSE server that answers a POST with another status than 202 may go without an answer."""
    spec = ChildSpec((*CLIENT, "none", "sse+{url}"))
    trial = client_trial(ClientTarget(spec, revision, 5.0, "sse"))
    behaviour = Behaviour(revision, (Deed("initialize", (), status=503),))
    played = trial.play(behaviour)
    heads = [seen.status for _, seen in played.seen if isinstance(seen, Head)]
    assert heads in ([200, 503], [200])  # the refusal is not observed of a client that goes at once
    assert trial.judge(behaviour, played) == []


def test_our_end_of_http_sse_is_lawful() -> None:
    """The address comes first, posts are accepted, and all messages of the server are on the stream."""
    trial = client_trial(ClientTarget(ChildSpec((*CLIENT, "none", "sse+{url}")), "2025-06-18", 10.0, "sse"))
    played = trial.play(Behaviour("2025-06-18"))
    assert [seen.status for _, seen in played.seen if isinstance(seen, Head)] == [200, 202, 202, 202]
    events = [seen for _, seen in played.seen if isinstance(seen, Said) and seen.sender is Role.SERVER]
    assert [seen.event for seen in events] == ["endpoint", "message", "message"]
    assert {seen.channel for seen in events} == {0}
    assert violations_of(played, None, Transport.EVENTS, Role.SERVER) == []


def test_what_is_posted_for_no_stream_is_refused_and_not_seen() -> None:
    with server(HttpConnections(Behaviour("2025-06-18"), Ledger(1.0)), SseChannel) as (connection, ledger):
        for path, status in (("/messages", 404), ("/messages?session=7", 404), ("/messages?session=%C2%B2", 404)):
            connection.request("POST", path, b"{}")
            reply = connection.getresponse()
            reply.read()
            assert reply.status == status, path
        assert ledger.seen == []


def test_our_end_is_named_in_arguments_and_environment() -> None:
    spec = ChildSpec(("c", "{server}", "--x={server}"), {"A": "{server}"})
    made = for_server(spec, 7, "token")
    assert made.command[-1].startswith("--x=")
    assert made.command[-1].endswith("7 token")
    assert made.command[-3:-1] == ("7", "token"), "an argument of its own becomes several"
    assert made.env["A"] == made.env["ISTHMUS_SERVER"] == made.command[-1].removeprefix("--x=")
    made = for_url(ChildSpec(("c", "--x={url}"), {"A": "{url}"}), "http://h/")
    assert made.command == ("c", "--x=http://h/")
    assert made.env == {"A": "http://h/", "ISTHMUS_URL": "http://h/"}


# --- No fault of a client -------------------------------------------------------------------------------------------


def played(revision: str, **more: Any) -> Played:
    """The observations of a client on a pipe that gets a server request before its own request is answered, and
    keeps silent."""
    envelope = {"io.modelcontextprotocol/protocolVersion": revision, "io.modelcontextprotocol/clientCapabilities": {}}
    meta = {**envelope, "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}}
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    is_stateless = Behaviour(revision).is_stateless
    list_request = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/list",
        "params": {"_meta": meta} if is_stateless else {},
    }
    messages: list[tuple[Role, dict[str, Any]]] = [
        (Role.CLIENT, list_request),
        (Role.SERVER, {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    ]
    if not is_stateless:
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        answer = {"jsonrpc": "2.0", "id": 1, **result_of(Behaviour(revision), first)}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        messages[:0] = [(Role.CLIENT, first), (Role.SERVER, answer), (Role.CLIENT, ready)]
    return Played([(0, Said(0, who, msgspec.json.encode(message))) for who, message in messages], **more)


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_server_request_is_owed_the_answer_that_was_awaited(revision: str) -> None:
    behaviour = Behaviour(revision)
    found = judge_client(behaviour, played(revision, vain=frozenset({0})), Transport.PIPE)
    assert [each.rule for each in found] == ([] if behaviour.is_stateless else ["unanswered"])
    assert judge_client(behaviour, played(revision), Transport.PIPE) == [], "it has gone"


def test_a_client_may_wait_for_what_it_is_owed() -> None:
    waiting = played("2025-06-18", is_hung=True)
    assert judge_client(Behaviour("2025-06-18"), waiting, Transport.PIPE) == []
    hung = Played(waiting.seen[:3], is_hung=True)
    assert [each.rule for each in judge_client(Behaviour("2025-06-18"), hung, Transport.PIPE)] == ["hangs"]


# --- Limits ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(
    sessions: HttpSessions | HttpConnections, kind: type[Request] = Channel
) -> Iterator[tuple[http.client.HTTPConnection, Ledger]]:
    with Server(sessions, kind) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", listening.server_port, timeout=20)
        try:
            yield connection, sessions.ledger
        finally:
            connection.close()
            sessions.ledger.close()
            listening.shutdown()
            thread.join()


def test_a_client_that_says_too_much_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "OBSERVATIONS_MAX", 2)
    ledger = Ledger(1.0)
    for _ in range(3):
        ledger.see(0, Said(0, Role.CLIENT, b"{}"))
    assert (len(ledger.seen), ledger.is_cut, ledger.is_over) == (2, True, True)
    assert not ledger.wait(When.NOW, 0), "no message is sent any more"


def test_what_is_too_long_or_for_nobody_is_refused_and_not_seen() -> None:
    with server(HttpSessions(Behaviour("2025-06-18"), Ledger(1.0))) as (connection, ledger):
        for method, path, headers, status in (
            ("POST", "/mcp", {"Content-Length": str(BODY_MAX_BYTES + 1)}, 413),
            ("POST", "/mcp", {"Content-Length": "x"}, 413),
            ("POST", "/register", {"Content-Length": "0"}, 404),
            ("GET", "/.well-known/oauth-protected-resource", {}, 404),
            ("DELETE", "/", {}, 404),
        ):
            connection.putrequest(method, path)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            reply = connection.getresponse()
            reply.read()
            assert reply.status == status, (method, path)
        assert ledger.seen == []


def test_a_body_in_chunks_is_read() -> None:
    with server(HttpSessions(Behaviour("2025-06-18"), Ledger(1.0))) as (connection, ledger):
        body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
        connection.request("POST", "/mcp", iter([body[:9], body[9:]]), encode_chunked=True)
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("Mcp-Session-Id")) == (200, "session-0")
        reply.read()
        bodies = [seen.message for _, seen in ledger.seen if isinstance(seen, Said) and seen.sender is Role.CLIENT]
        assert bodies == [body]


def test_each_handshake_without_a_session_is_a_wire_of_its_own() -> None:
    sessions = HttpSessions(Behaviour("2025-06-18"), Ledger(1.0))
    hello = {"method": "initialize"}
    assert sessions.wire_of(None, {"method": "server/discover"}) == 0, "a probe is of the first"
    assert sessions.wire_of(None, hello) == 0
    session = sessions.begin_session(0)
    assert [sessions.wire_of(None, hello), sessions.wire_of(None, None)] == [1, 1]
    assert sessions.wire_of(session, hello) == 0
    assert [sessions.refusal(each, is_hello=False) for each in (session, None, "another")] == [None, 400, 404]
    sessions.end_session(session)
    assert sessions.refusal(session, is_hello=False) == 404


def test_a_connection_without_the_token_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gate = PipeListener(listener, "token", ServerConnections(Behaviour("2025-06-18"), ledger := Ledger(1.0)))
        with socket.create_connection(listener.getsockname()) as peer:
            peer.settimeout(20)
            peer.sendall(b"another\n{}\n")
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
        gate.cut()
        gate.close()
        assert ledger.seen == []


# --- Kinds and rules ------------------------------------------------------------------------------------------------


def surveys() -> Iterator[ClientSurvey]:
    for revision in REVISIONS:
        for transport in Transport:
            hello = "initialize" if revision in REVISIONS[:-1] else "server/discover"
            yield ClientSurvey(revision, transport, (hello,), (hello,))
            requests = (hello, "tools/list", "tools/call", "tasks/get", "tasks/result")
            abilities: dict[str, Any] = {"roots": {}, "elicitation": {}, "sampling": {}}
            abilities["tasks"] = {"requests": {"sampling": {"createMessage": {}}}}
            yield ClientSurvey(revision, transport, requests, requests, abilities, has_tasks=True)


def test_every_kind_has_a_place_and_can_be_made() -> None:
    """Each kind can be made with the first and the last of each choice, and reacts to requests that the client
    sends."""
    used = set()
    for survey in surveys():
        for name, kind in KINDS.items():
            if kind not in kinds_for(survey):
                continue
            used.add(name)
            for last in (0, -1):
                deeds = kind.make(DeedContext(survey, lambda values, last=last: values[last]))  # type: ignore[misc]
                assert deeds
                assert {deed.on for deed in deeds} <= {*survey.requests, "notifications/initialized", "initialize"}
    assert used == set(KINDS)


def test_every_rule_of_the_table_is_one_of_the_client_s() -> None:
    assert {rule for rules in CLIENT_CHANCES.values() for rule in rules} <= set(CLIENT_RULES)


def test_a_deed_is_done_once_and_then_all_is_orderly() -> None:
    script = Script(Behaviour("2025-06-18", (Deed("ping", ()), Deed("ping", (Line("a"),)))))
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": "ü", "method": "ping"}
    assert [script.deed_for(request).lines for _ in range(3)] == [(), (Line("a"),), (Line(),)]
    assert script.deed_for({"method": "ping"}).lines == ()


@pytest.mark.parametrize("revision", REVISIONS)
def test_lines_are_filled_with_what_they_are_about(revision: str) -> None:
    script = Script(Behaviour(revision, tools=("t",)))
    request: dict[str, Any] = {"id": 'a"b', "method": "tools/list", "params": {"_meta": {"progressToken": 0}}}
    (answer,) = decoded(script.fill(Line().body, request) or "")
    assert answer["id"] == 'a"b'
    assert [each["name"] for each in answer["result"]["tools"]] == ["t"]
    assert script.fill('{"t":"$token"}', request) == '{"t":0}'
    assert script.fill('{"t":"$token"}', {"id": 1, "method": "tools/list"}) is None
    (answer,) = decoded(script.fill(Line().body, {"id": 1, "method": "no/such"}) or "")
    assert answer["error"]["code"] == -32601


def test_stages_leave_nothing_behind(tmp_path: Path) -> None:
    """The ports are closed, and the client has gone."""
    mark = tmp_path / "port"
    code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    trial = client_trial(ClientTarget(ChildSpec((sys.executable, "-S", "-c", code, str(mark), "{url}")), None, 1.0))
    assert trial.play(Behaviour("2025-06-18")).seen == []
    port = int(mark.read_text().rpartition(":")[2].partition("/")[0])
    with contextlib.closing(socket.socket()) as peer:
        assert peer.connect_ex(("127.0.0.1", port)) != 0
