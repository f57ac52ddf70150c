"""Tests of known weaknesses of programs that carry files, over the wire: one test for each.

Weaknesses of time and accounting are tested with a clock of our own, in
`tests/core/engine/test_files_known_weaknesses.py`.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from file_world import ADAPTED, AUTO, Agent, World, artifacts, changed, proxy, puppet, until
from isthmus.app.base.errors import StartError
from isthmus.app.config.file_settings import UploadConsumerAdapter
from isthmus.app.config.settings import Artifacts, Core, Management, Server, Sessions, ToolFilter, Uploads, Upstream

PAGE = "https://page.example"
HIDING = changed(puppet("hiding", tools=ToolFilter(exclude=("hidden",))), adapters=ADAPTED.adapters)
KEYED = puppet("keyed", files="auto", required_headers=("X-Key",))
SICK = Server(
    id="sick",
    upstream=Upstream(command=("/nonexistent/program",)),
    adapters=(UploadConsumerAdapter(tools=("*",), file_path_argument="path"),),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with proxy(
        tmp_path_factory.mktemp("data"),
        *(AUTO, ADAPTED, HIDING, KEYED, SICK),
        core=Core(port=0, drain_seconds=2.0, allowed_origins=(PAGE,), management=Management(token="let me in")),
        uploads=Uploads(max_file_bytes=1 << 20),
        artifacts=Artifacts(max_inline_bytes=1000),
    ) as world:
        yield world


def sessions(world: World) -> int:
    return world.gateway.hub.engine.session_count


# --- One request does not stop the rest -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x" * 234, "x" * 255, "é" * 200 + ".tar.gz", "x" * 4096, "." * 300, "a/" * 300])
def test_an_odd_file_name_is_a_name_like_others(name: str, world: World) -> None:
    """A name that no file system accepts fails neither the upload nor the proxy, and reaches the tool shortened."""
    agent = Agent(world, "auto")
    handle = agent.upload(name, b"content")
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "content"
    assert world.is_well()


@pytest.mark.parametrize("session", ["/etc", "..", "x" * 4096, "a b", "\N{BULLET}"])
def test_an_odd_session_header_fails_its_own_request_only(session: str, world: World) -> None:
    agent = Agent(world, "auto")
    assert agent.put("a.txt", **{"mcp-session-id": session}).status < 500  # nothing is looked up by it
    before = world.stored()
    assert world.fetch("/mcp/auto", method="POST", headers={**agent.headers, "mcp-session-id": session}).status < 500
    assert world.stored() == before
    assert world.is_well()


def test_no_path_gets_past_the_checks_by_how_it_ends(world: World) -> None:
    """A path that resembles a discovery document is not public, and a request makes no session without a handshake."""
    agent = Agent(world, "auto")
    before = sessions(world)
    sid = agent.upload("a.txt").split("/")[3]
    for path in (f"/artifacts/auto/{sid}/y/x", f"/artifacts/{sid}/X/y", "/mcp/auto", "/upload/auto", "/servers", ""):
        for name in ("openid-configuration", "oauth-authorization-server", "oauth-protected-resource"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                target = f"{path}/.well-known/{name}?session_id={sid}"
                assert 400 <= world.fetch(target, method=method, headers={"mcp-session-id": sid}).status < 500
    assert sessions(world) == before
    assert agent.text("act", text="still here") == "still here"


def test_two_proxies_never_use_one_folder(tmp_path: Path) -> None:
    """The second proxy is refused before it touches anything; the first still has its files."""
    with proxy(tmp_path, AUTO) as first:
        agent = Agent(first, "auto")
        handle = agent.upload("a.txt", b"mine")
        (made,) = artifacts(agent.call("act", steps=[["write", "out.txt", "made"]]))
        before = first.stored()
        with pytest.raises(StartError, match="another process uses"), proxy(tmp_path, AUTO):
            raise AssertionError("it started")
        assert first.stored() == before
        assert agent.text("act", steps=[["read", handle]], text="{0}") == "mine"
        assert first.fetch(made["download_url"]).body == b"made"


@pytest.mark.parametrize("text", ["session not found", "Session terminated", "404: unknown session, initialize again"])
def test_a_tool_runs_once_whatever_it_says(text: str, world: World) -> None:
    """A tool error that reads like a transport's error is the tool's, and nothing is repeated."""
    agent = Agent(world, "auto")
    for result in (
        {"content": [{"type": "text", "text": text}], "isError": True},
        {"content": [], "structuredContent": {"error": {"code": -32600, "message": text}}, "isError": True},
    ):
        before = int(agent.text("act", steps=[["count"]], text="{0}"))
        assert agent.call("act", result=result) == result
        assert int(agent.text("act", steps=[["count"]], text="{0}")) == before + 2


# --- No access to the files of others -------------------------------------------------------------------------------


def test_a_result_that_names_files_of_others_takes_nothing(world: World) -> None:
    """State, blobs and files of another session are refused, for every adapter and every spelling."""
    other = Agent(world, "auto")
    other_ws = folder_of(other)
    other.call("act", steps=[["write", "secret.txt", "the other's secret"]])
    handle = other.upload("secret.bin", b"uploaded secret")
    other_in = other.text("act", text=handle).rpartition("/")[0]
    blobs = [str(path) for path in (world.root / "blobs").iterdir()]
    state = [str(path) for path in (world.root / "state").iterdir()]
    named = [*state, *blobs[:3], f"{other_ws}/secret.txt", str(world.root), str(world.root / "state"), other_in]
    named += [os.path.relpath(path, other_ws) for path in named]  # all sessions lie equally deep
    for id in ("auto", "adapted"):
        agent = Agent(world, id)
        for path in named:
            content = [
                {"type": "text", "text": f"Saved to {path} ([it]({path}))"},
                {"type": "resource_link", "name": "x", "uri": f"file://{path}"},
            ]
            result = {"content": content, "structuredContent": {"path": path, "paths": [path]}}
            assert artifacts(agent.call("act", result=result)) == [], path
        steps = [["link", f"l{number}", path] for number, path in enumerate(named)]
        result = agent.call("act", steps=steps, text=" ".join(f"./l{number}" for number in range(len(named))))
        assert artifacts(result) == []
        assert "secret" not in json.dumps(result)
        own = agent.call("act", steps=[["write", "own.txt", "x"]], text="Saved to {0}")
        assert [made["filename"] for made in artifacts(own)] == ["own.txt"], "its own is taken all the same"


def folder_of(agent: Agent) -> str:
    """The folder that a session's server runs in, from a file that only its server sees."""
    root = agent.world.root / "workspaces"
    mark = f"mark-{id(agent)}"
    agent.call("act", steps=[["write", f".{mark}", ""]])
    (path,) = root.glob(f"*/ws/.{mark}")
    return str(path.parent)


def test_no_link_and_no_result_contains_the_secret_of_a_session(world: World) -> None:
    """Handles and links contain another id of the session, which opens nothing."""
    agent = Agent(world, "auto")
    texts = json.dumps(agent.call(agent.helper)) + json.dumps(agent.call("act", steps=[["write", "a.txt", "x"]]))
    texts += json.dumps(agent.request("resources/list")) + agent.put("b.txt").body.decode()
    secret = agent.headers["mcp-session-id"]
    assert secret not in texts
    sid = re.findall(r"sessions/([0-9a-f]{32})/", texts)[0]
    reply = world.fetch("/mcp/auto", method="POST", headers={**agent.headers, "mcp-session-id": sid}, body=PING)
    assert reply.status == 404, "the id in links is no session id"
    url = re.findall(r"http://[^ \"]+/artifacts/[^ \"\\]+", texts)[0]
    assert world.fetch(url).status == 200
    for without in (url.partition("?")[0], url.partition("?")[0] + f"?session_id={sid}"):
        assert world.fetch(without, headers={"mcp-session-id": secret}).status == 403


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def test_rules_apply_from_the_first_call_on(world: World) -> None:
    """Hidden tools cannot be called, and paths are not taken for handles, before the server's tools were ever
    listed."""
    agent = Agent(world, "hiding")
    answer = agent.exchange("tools/call", {"name": "hidden", "arguments": {"path": "h.txt"}})
    assert "error" in answer or answer["result"]["isError"]
    for path in ("/etc/hostname", "file:///etc/hostname", "../ws/h.txt"):
        refused = agent.call("read", path=path)
        assert refused["isError"]
        assert "upload://" in refused["content"][0]["text"]
    assert agent.text("act", steps=[["count"]], text="{0}") == "1", "none of it reached the server"
    listed = [tool["name"] for tool in agent.request("tools/list")["tools"]]
    assert "hidden" not in listed
    assert "read" in listed


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
def test_pages_of_others_and_their_names_for_us_are_refused(headers: dict[str, str], world: World) -> None:
    """The refusal comes on every path of files, before anything is done. No link depends on a Host header."""
    agent = Agent(world, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    before = world.stored()
    link = agent.link()
    assert agent.put("b.txt", link=link, **headers).status == 403
    assert world.fetch(link, method="POST", headers=headers, body=b"").status == 403
    assert world.fetch(made["download_url"], headers=headers).status == 403
    body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": agent.helper}}).encode()
    assert world.fetch("/mcp/auto", method="POST", headers={**agent.headers, **headers}, body=body).status == 403
    assert world.stored() == before
    assert agent.put("b.txt", link=link).status == 200, "a refused request spends nothing"


def test_a_session_header_is_no_part_of_a_path(world: World) -> None:
    agent = Agent(world, "auto")
    agent.call("act", steps=[])  # now its folders are made
    before = {str(path) for path in world.root.rglob("*")}
    for session in ("../../state", "../state", "..%2f..%2fstate", "state", ".", "//etc", "C:\\x"):
        assert agent.put("x.txt", **{"mcp-session-id": session}).status == 200
    new = {str(path) for path in world.root.rglob("*")} - before
    assert {os.path.dirname(path) for path in new} == {str(world.root / "blobs")}


def test_a_preflight_needs_no_credential(world: World) -> None:
    """A preflight carries no credential, and is answered on every path, also of a server that requires one."""
    asked = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-key"}
    for path in ("/mcp/keyed", "/upload/keyed", "/upload/auto", "/mcp/auto"):
        reply = world.fetch(path, method="OPTIONS", headers=asked)
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert "x-key" in reply.headers["access-control-allow-headers"]
    agent = Agent(world, "keyed", headers={"x-key": "1", "origin": PAGE})
    reply = agent.post(id=5, method="ping")
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert "Mcp-Session-Id" in reply.headers["access-control-expose-headers"]
    refused = world.fetch("/mcp/keyed", method="POST", headers={"origin": PAGE}, body=PING)
    assert refused.status >= 400
    assert refused.headers["access-control-allow-origin"] == PAGE, "a page may read why"


def test_secrets_are_compared_in_constant_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    compare = hmac.compare_digest

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    agent = Agent(world, "auto")
    link = agent.link()
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    wrong = "0" * 64
    monkeypatch.setattr(hmac, "compare_digest", comparing)
    for target, method, headers in (
        (link[:-22] + wrong[:22], "PUT", {"x-filename": "a"}),
        (re.sub(r"sig=[\w-]+", f"sig={wrong}", made["download_url"]), "GET", {}),
        ("/servers", "GET", {"authorization": "Bearer wrong"}),
    ):
        compared.clear()
        status = world.fetch(target, method=method, headers=headers, body=b"x" if method == "PUT" else None).status
        assert status in (401, 403)
        assert compared, target


def test_labels_of_metrics_do_not_grow_with_what_is_asked(world: World) -> None:
    token = {"authorization": "Bearer let me in"}
    names = set(re.findall(r"(?m)^(\w+\{[^}]*\}|\w+) ", world.fetch("/metrics", headers=token).body.decode()))
    agent = Agent(world, "auto")
    for number in range(20):
        world.fetch(f"/made-up-{number}/x")
        world.fetch(f"/artifacts/auto/s{number}/a{number}/n{number}")
        agent.put(f"label-{number}.txt")
    counted = world.fetch("/metrics", headers=token).body.decode()
    assert "made-up" not in counted
    assert "label-" not in counted
    more = set(re.findall(r"(?m)^(\w+\{[^}]*\}|\w+) ", counted)) - names
    assert len(more) < 20, more


def test_no_path_of_this_machine_reaches_a_client(world: World) -> None:
    """Texts, structured results and error messages are free of paths."""
    agent = Agent(world, "auto")
    handle = agent.upload("in.txt", b"x")
    wrote = [["write", "out.txt", "x"], ["write", "sub/more.txt", "y"]]
    structure = {"file": "{0}", "folder": "{cwd}", "deep": [{"at": "{cwd}/sub/more.txt"}]}
    for result in (
        agent.call("act", steps=wrote, text="{0} and {1} in {cwd}; read " + handle),
        agent.call("act", steps=wrote, result={"content": [], "structuredContent": structure}),
        agent.call("act", result={"content": [{"type": "text", "text": "no {cwd}/gone.txt"}], "isError": True}),
        agent.call("act", text="Saved to {cwd}/gone.txt"),
        agent.call("read", path=handle),
    ):
        assert str(world.root) not in json.dumps(result), result
        assert "/workspaces/" not in json.dumps(result), result


# --- Operators ------------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(world: World) -> None:
    """The head alone decides, and nothing of the body is kept."""
    agent = Agent(world, "auto")
    before = world.stored()
    parts = urlsplit(agent.link())
    for method, type in (("PUT", "application/octet-stream"), ("POST", "multipart/form-data; boundary=x")):
        head = f"{method} {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Filename: big\r\n"
        head += f"Content-Type: {type}\r\nContent-Length: {400 << 20}\r\n\r\n"
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=20) as connection:
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 413 "), "and not a byte of the body was sent"
    assert world.stored() == before


def test_a_large_artifact_is_not_put_into_a_message(world: World) -> None:
    agent = Agent(world, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "big.txt", "x" * 5000]]))
    answer = agent.exchange("resources/read", {"uri": made["artifact_uri"]})
    assert made["download_url"] in answer["error"]["message"]
    assert len(world.fetch(made["download_url"]).body) == 5000
    (small,) = artifacts(agent.call("act", steps=[["write", "small.txt", "x" * 500]]))
    assert agent.request("resources/read", {"uri": small["artifact_uri"]})["contents"][0]["text"] == "x" * 500


def test_files_outlive_a_restart(tmp_path: Path) -> None:
    """Sessions do not outlive it, and their clients get that answer. The handles still name their files in a new
    session."""
    with proxy(tmp_path, AUTO) as world:
        agent = Agent(world, "auto")
        handle = agent.upload("a b.txt", b"uploaded")
        (made,) = artifacts(agent.call("act", steps=[["write", "out.txt", "made"]]))
    with proxy(tmp_path, AUTO) as world:
        agent.world = world
        assert agent.post(id=50, method="ping").status == 404, "so that its client begins anew"
        agent = Agent(world, "auto")
        uri = made["artifact_uri"]
        assert agent.text("act", steps=[["read", handle], ["read", uri]], text="{0} {1}") == "uploaded made"
        assert agent.request("resources/read", {"uri": uri})["contents"][0]["text"] == "made"
        path = urlsplit(made["download_url"])
        assert world.fetch(f"{path.path}?{path.query}").body == b"made"


def test_health_is_that_of_the_proxy(world: World, tmp_path: Path) -> None:
    """The health page stays short and positive, whatever is stored, and with a server that cannot be started."""
    with proxy(tmp_path, AUTO, SICK, is_lasting=False) as unlasting:
        assert unlasting.fetch("/healthz").status == 200
    short = len(world.fetch("/healthz").body)
    for _ in range(5):
        world.fetch("/mcp/sick", method="POST", headers=HEADERS, body=INITIALIZE)
    assert world.fetch("/readyz").status == 503, "readiness is on another page"
    for number in range(5):
        Agent(world, "auto").upload(f"{number}.txt")
    reply = world.fetch("/healthz")
    assert reply.status == 200
    assert len(reply.body) < short + 10
    assert world.is_well()


def test_structure_alone_still_says_where_the_file_is(world: World) -> None:
    """A client that shows its model nothing but the structured result has the URI there."""
    agent = Agent(world, "auto")
    structure = {"saved": {"path": "{0}", "size": 1}, "note": "wrote {0}"}
    result = agent.call("act", steps=[["write", "a.txt", "x"]], result={"content": [], "structuredContent": structure})
    (made,) = artifacts(result)
    uri = made["artifact_uri"]
    assert result["structuredContent"] == {"saved": {"path": uri, "size": 1}, "note": f"wrote {uri}"}
    assert agent.request("resources/read", {"uri": uri})["contents"][0]["text"] == "x"


def test_large_files_have_what_they_need(world: World) -> None:
    """Large files have one request without a form, a size check by the head, metadata without the content, ranges,
    and an expiry date."""
    agent = Agent(world, "auto")
    handle = agent.upload("a.bin", b"0123456789")
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "0123456789"
    (made,) = artifacts(agent.call("act", steps=[["write", "out.txt", "0123456789"]]))
    assert made["expires_at"].endswith("Z")
    url = made["download_url"]
    head = world.fetch(url, method="HEAD")
    assert (head.status, head.headers["content-length"], head.body) == (200, "10", b"")
    assert head.headers["accept-ranges"] == "bytes"
    part = world.fetch(url, headers={"range": "bytes=2-4"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    (long,) = artifacts(agent.call("act", steps=[["write", "long.txt", "x" * 5000]]))
    parts = world.fetch(long["download_url"], headers={"range": "bytes=0-1,-2"})
    assert parts.status == 206
    assert parts.headers["content-type"].startswith("multipart/byteranges")
    assert len(parts.body) < 1000
    same = world.fetch(url, headers={"if-none-match": head.headers["etag"]})
    assert same.status == 304
    assert dict(parse_qsl(urlsplit(url).query)).keys() == {"exp", "sig"}


def test_an_upload_that_was_cut_off_goes_on_where_it_was(world: World) -> None:
    """The upload is no handle before it is complete, and its size is checked before a byte is sent."""
    agent = Agent(world, "auto")
    link, tus = agent.link(), {"tus-resumable": "1.0.0"}
    assert world.fetch(link, method="POST", headers={**tus, "upload-length": str(2 << 20)}, body=b"").status == 413
    made = world.fetch(link, method="POST", headers={**tus, "upload-length": "10"}, body=b"")
    assert made.status == 201
    there = made.headers["location"]
    patch = {**tus, "content-type": "application/offset+octet-stream"}
    first = world.fetch(there, method="PATCH", headers={**patch, "upload-offset": "0"}, body=b"01234")
    assert (first.status, "upload-handle" in first.headers) == (204, False)
    assert world.fetch(there, method="HEAD", headers=tus).headers["upload-offset"] == "5"
    assert world.fetch(there, method="PATCH", headers={**patch, "upload-offset": "3"}, body=b"34567").status == 409
    last = world.fetch(there, method="PATCH", headers={**patch, "upload-offset": "5"}, body=b"56789")
    assert agent.text("act", steps=[["read", last.headers["upload-handle"]]], text="{0}") == "0123456789"


# --- Roots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["auto", "adapted"])
def test_a_client_that_names_the_whole_disk_as_its_root_gains_nothing(id: str, world: World) -> None:
    """The server adopts the roots it is given. It is given its session's folders, whatever the client's are."""
    agent = Agent(world, id, roots=["file:///", "file:///etc"])
    roots: list[str] = []

    def has_roots() -> bool:
        roots[:] = json.loads(agent.text("act", steps=[["roots"]], text="{0}"))
        return bool(roots)

    until(has_roots, "the server was told of no roots")
    folder = str(world.root / "workspaces") + "/"
    shown = agent.text("act", steps=[["roots"]], text="{0}")
    assert "file:///etc" not in shown
    for root in roots:
        assert root not in ("/", "/etc")
        assert not root.startswith("/") or root.startswith(folder)
    handle = agent.upload("mine.txt", b"mine")
    if id == "auto":  # where arguments are not all handles
        refused = agent.call("read", path="/etc/hostname")
        assert refused["isError"]
        assert "is outside of" in refused["content"][0]["text"]
    assert agent.text("read", path=handle) == "mine"


def test_limits_of_sessions_hold_for_uploads_too(tmp_path: Path) -> None:
    """A full store refuses the newcomer, and no other client's file is removed for it."""
    with proxy(tmp_path, AUTO, sessions=Sessions(max_total_session_size=1000, max_active=2)) as world:
        one, other = Agent(world, "auto"), Agent(world, "auto")
        kept = one.upload("kept.txt", b"x" * 900)
        for _ in range(3):
            assert other.put("big.txt", b"y" * 1001).status in (413, 429, 507)
        assert one.text("act", steps=[["read", kept]], text="{0}") == "x" * 900
        refused = world.fetch("/mcp/auto", method="POST", headers=HEADERS, body=INITIALIZE)
        assert refused.status >= 400 or b'"error"' in refused.body
        assert one.text("act", text="still") == "still"


HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}},
    }
).encode()
