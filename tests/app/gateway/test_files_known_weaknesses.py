"""What carriers of files are known to get wrong, over the wire: one test for each, which fails if we did so too.

Numbers name the behaviour; those that are missing here are about time and accounting, and are tested where the clock is
ours: `tests/core/engine/test_files_known_weaknesses.py`.
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
from file_ground import ADAPTED, AUTO, Agent, Ground, artifacts, changed, proxy, puppet, until
from isthmus.app.base.errors import StartError
from isthmus.app.config.file_settings import UploadConsumerAdapter
from isthmus.app.config.settings import Artifacts, Core, Filter, Management, Server, Sessions, Uploads, Upstream

PAGE = "https://page.example"
HIDING = changed(puppet("hiding", tools=Filter(exclude=("hidden",))), adapters=ADAPTED.adapters)
KEYED = puppet("keyed", files="auto", required_headers=("X-Key",))
SICK = Server(
    id="sick",
    upstream=Upstream(command=("/nonexistent/program",)),
    adapters=(UploadConsumerAdapter(tools=("*",), file_path_argument="path"),),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with proxy(
        tmp_path_factory.mktemp("data"),
        *(AUTO, ADAPTED, HIDING, KEYED, SICK),
        core=Core(port=0, drain_seconds=2.0, allowed_origins=(PAGE,), management=Management(token="let me in")),
        uploads=Uploads(max_file_bytes=1 << 20),
        artifacts=Artifacts(max_inline_bytes=1000),
    ) as ground:
        yield ground


def sessions(ground: Ground) -> int:
    return ground.service.hub.engine.session_count


# --- One request does not stop the rest -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x" * 234, "x" * 255, "é" * 200 + ".tar.gz", "x" * 4096, "." * 300, "a/" * 300])
def test_w01_an_odd_file_name_is_a_name_like_others(name: str, ground: Ground) -> None:
    """A name that no folder takes as it is neither fails the upload nor the proxy, and reaches the tool cut."""
    agent = Agent(ground, "auto")
    handle = agent.upload(name, b"content")
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "content"
    assert ground.is_well()


@pytest.mark.parametrize("session", ["/etc", "..", "x" * 4096, "a b", "\N{BULLET}"])
def test_w01_an_odd_session_header_fails_its_own_request_only(session: str, ground: Ground) -> None:
    agent = Agent(ground, "auto")
    before = ground.stored()
    assert 400 <= agent.put("a.txt", **{"mcp-session-id": session}).status < 500
    assert ground.fetch("/mcp/auto", method="POST", headers={**agent.headers, "mcp-session-id": session}).status < 500
    assert ground.stored() == before
    assert ground.is_well()


def test_w02_no_path_gets_past_the_checks_by_how_it_ends(ground: Ground) -> None:
    """What looks like a discovery document of something is no public path, and nobody's session is made by asking."""
    agent = Agent(ground, "auto")
    before = sessions(ground)
    sid = agent.upload("a.txt").split("/")[3]
    for path in (f"/artifacts/auto/{sid}/y/x", f"/artifacts/{sid}/X/y", "/mcp/auto", "/upload/auto", "/servers", ""):
        for name in ("openid-configuration", "oauth-authorization-server", "oauth-protected-resource"):
            for method in ("GET", "POST", "PUT", "DELETE"):
                target = f"{path}/.well-known/{name}?session_id={sid}"
                assert 400 <= ground.fetch(target, method=method, headers={"mcp-session-id": sid}).status < 500
    assert sessions(ground) == before
    assert agent.text("act", text="still here") == "still here"


def test_w04_two_proxies_never_keep_house_in_one_folder(tmp_path: Path) -> None:
    """The second is refused before it touches anything; the first still has its files."""
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
def test_w06_a_tool_runs_once_whatever_it_says(text: str, ground: Ground) -> None:
    """An error of a tool that reads like one of the transport's is the tool's, and nothing is done again."""
    agent = Agent(ground, "auto")
    for result in (
        {"content": [{"type": "text", "text": text}], "isError": True},
        {"content": [], "structuredContent": {"error": {"code": -32600, "message": text}}, "isError": True},
    ):
        before = int(agent.text("act", steps=[["count"]], text="{0}"))
        assert agent.call("act", result=result) == result
        assert int(agent.text("act", steps=[["count"]], text="{0}")) == before + 2


# --- Nobody gets what is another's ----------------------------------------------------------------------------------


def test_w08_a_result_that_names_what_is_not_the_sessions_takes_nothing(ground: Ground) -> None:
    """Neither state nor blobs, nor files of another session, whichever adapter looks and however they are named."""
    other = Agent(ground, "auto")
    other_ws = ground_of(other)
    other.call("act", steps=[["write", "secret.txt", "the other's secret"]])
    handle = other.upload("secret.bin", b"uploaded secret")
    other_in = other.text("act", text=handle).rpartition("/")[0]
    blobs = [str(path) for path in (ground.root / "blobs").iterdir()]
    state = [str(path) for path in (ground.root / "state").iterdir()]
    named = [*state, *blobs[:3], f"{other_ws}/secret.txt", str(ground.root), str(ground.root / "state"), other_in]
    named += [os.path.relpath(path, other_ws) for path in named]  # all sessions lie equally deep
    for id in ("auto", "adapted"):
        agent = Agent(ground, id)
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


def ground_of(agent: Agent) -> str:
    """The folder that a session's server runs in, from a file that only its server sees."""
    root = agent.ground.root / "workspaces"
    mark = f"mark-{id(agent)}"
    agent.call("act", steps=[["write", f".{mark}", ""]])
    (path,) = root.glob(f"*/ws/.{mark}")
    return str(path.parent)


def test_w09_no_link_and_no_result_holds_the_secret_of_a_session(ground: Ground) -> None:
    """Handles and links name a session by another name, which opens nothing."""
    agent = Agent(ground, "auto")
    said = json.dumps(agent.call(agent.helper)) + json.dumps(agent.call("act", steps=[["write", "a.txt", "x"]]))
    said += json.dumps(agent.request("resources/list")) + agent.put("b.txt").body.decode()
    secret = agent.headers["mcp-session-id"]
    assert secret not in said
    sid = re.findall(r"sessions/([0-9a-f]{32})/", said)[0]
    reply = ground.fetch("/mcp/auto", method="POST", headers={**agent.headers, "mcp-session-id": sid}, body=PING)
    assert reply.status == 404, "what is written into links is no session to whoever reads it there"
    url = re.findall(r"http://[^ \"]+/artifacts/[^ \"\\]+", said)[0]
    assert ground.fetch(url).status == 200
    for without in (url.partition("?")[0], url.partition("?")[0] + f"?session_id={sid}"):
        assert ground.fetch(without, headers={"mcp-session-id": secret}).status == 403


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def test_w10_rules_hold_from_the_first_call_on(ground: Ground) -> None:
    """Before a server's tools were ever listed, hidden ones cannot be called, nor are paths taken for handles."""
    agent = Agent(ground, "hiding")
    answer = agent.ask("tools/call", {"name": "hidden", "arguments": {"path": "h.txt"}})
    assert "error" in answer or answer["result"]["isError"]
    for path in ("/etc/hostname", "file:///etc/hostname", "../ws/h.txt"):
        refused = agent.call("read", path=path)
        assert refused["isError"]
        assert "upload://" in refused["content"][0]["text"]
    assert agent.text("act", steps=[["count"]], text="{0}") == "1", "the server heard of none of it"
    listed = [tool["name"] for tool in agent.request("tools/list")["tools"]]
    assert "hidden" not in listed
    assert "read" in listed


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
def test_w11_pages_of_others_and_their_names_for_us_are_refused(headers: dict[str, str], ground: Ground) -> None:
    """On every path of files, before anything is done; and no link is steered by a Host header."""
    agent = Agent(ground, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    before = ground.stored()
    link = agent.link()
    assert agent.put("b.txt", link=link, **headers).status == 403
    assert ground.fetch(link, method="POST", headers=headers, body=b"").status == 403
    assert ground.fetch(made["download_url"], headers=headers).status == 403
    body = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": agent.helper}}).encode()
    assert ground.fetch("/mcp/auto", method="POST", headers={**agent.headers, **headers}, body=body).status == 403
    assert ground.stored() == before
    assert agent.put("b.txt", link=link).status == 200, "a refused request spends nothing"


def test_w12_a_session_header_is_no_part_of_a_path(ground: Ground) -> None:
    agent = Agent(ground, "auto")
    before = {str(path) for path in ground.root.rglob("*")}
    for session in ("../../state", "../state", "..%2f..%2fstate", "state", ".", "//etc", "C:\\x"):
        assert agent.put("x.txt", **{"mcp-session-id": session}).status == 403
    assert {str(path) for path in ground.root.rglob("*")} == before


def test_w13_a_page_that_may_call_is_told_so_before_it_shows_a_credential(ground: Ground) -> None:
    """A preflight carries no credential, and is answered on every path, also of a server that wants one."""
    asked = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-key"}
    for path in ("/mcp/keyed", "/upload/keyed", "/upload/auto", "/mcp/auto"):
        reply = ground.fetch(path, method="OPTIONS", headers=asked)
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert "x-key" in reply.headers["access-control-allow-headers"]
    agent = Agent(ground, "keyed", headers={"x-key": "1", "origin": PAGE})
    reply = agent.post(id=5, method="ping")
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert "Mcp-Session-Id" in reply.headers["access-control-expose-headers"]
    refused = ground.fetch("/mcp/keyed", method="POST", headers={"origin": PAGE}, body=PING)
    assert refused.status >= 400
    assert refused.headers["access-control-allow-origin"] == PAGE, "a page may read why"


def test_w14_secrets_are_compared_in_constant_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    compare = hmac.compare_digest

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    agent = Agent(ground, "auto")
    link = agent.link()
    (made,) = artifacts(agent.call("act", steps=[["write", "a.txt", "x"]]))
    wrong = "0" * 64
    monkeypatch.setattr(hmac, "compare_digest", comparing)
    for target, method, headers in (
        (re.sub("sig=[0-9a-f]+", f"sig={wrong}", link), "PUT", {"x-filename": "a"}),
        (re.sub("sig=[0-9a-f]+", f"sig={wrong}", made["download_url"]), "GET", {}),
        ("/servers", "GET", {"authorization": "Bearer wrong"}),
    ):
        compared.clear()
        status = ground.fetch(target, method=method, headers=headers, body=b"x" if method == "PUT" else None).status
        assert status in (401, 403)
        assert compared, target


def test_w14_labels_of_metrics_do_not_grow_with_what_is_asked(ground: Ground) -> None:
    token = {"authorization": "Bearer let me in"}
    names = set(re.findall(r"(?m)^(\w+\{[^}]*\}|\w+) ", ground.fetch("/metrics", headers=token).body.decode()))
    agent = Agent(ground, "auto")
    for number in range(20):
        ground.fetch(f"/made-up-{number}/x")
        ground.fetch(f"/artifacts/auto/s{number}/a{number}/n{number}")
        agent.put(f"label-{number}.txt")
    counted = ground.fetch("/metrics", headers=token).body.decode()
    assert "made-up" not in counted
    assert "label-" not in counted
    more = set(re.findall(r"(?m)^(\w+\{[^}]*\}|\w+) ", counted)) - names
    assert len(more) < 20, more


def test_w14_no_path_of_this_machine_reaches_a_client(ground: Ground) -> None:
    """Neither in text nor in structure, nor in the words for what went wrong."""
    agent = Agent(ground, "auto")
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
        assert str(ground.root) not in json.dumps(result), result
        assert "/workspaces/" not in json.dumps(result), result


# --- What operators see ---------------------------------------------------------------------------------------------


def test_w26_a_body_that_is_too_large_is_refused_before_it_is_sent(ground: Ground) -> None:
    """From its head alone, and nothing of it is kept."""
    agent = Agent(ground, "auto")
    before = ground.stored()
    parts = urlsplit(agent.link())
    for method, type in (("PUT", "application/octet-stream"), ("POST", "multipart/form-data; boundary=x")):
        head = f"{method} {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Filename: big\r\n"
        head += f"Content-Type: {type}\r\nContent-Length: {400 << 20}\r\n\r\n"
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=20) as connection:
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 413 "), "and not a byte of the body was sent"
    assert ground.stored() == before


def test_w26_a_large_artifact_is_not_put_into_a_message(ground: Ground) -> None:
    agent = Agent(ground, "auto")
    (made,) = artifacts(agent.call("act", steps=[["write", "big.txt", "x" * 5000]]))
    answer = agent.ask("resources/read", {"uri": made["artifact_uri"]})
    assert made["download_url"] in answer["error"]["message"]
    assert len(ground.fetch(made["download_url"]).body) == 5000
    (small,) = artifacts(agent.call("act", steps=[["write", "small.txt", "x" * 500]]))
    assert agent.request("resources/read", {"uri": small["artifact_uri"]})["contents"][0]["text"] == "x" * 500


def test_w27_files_outlive_a_restart(tmp_path: Path) -> None:
    """Sessions do not, and are told so; whoever goes on in a new one still has what its handles name."""
    with proxy(tmp_path, AUTO) as ground:
        agent = Agent(ground, "auto")
        handle = agent.upload("a b.txt", b"uploaded")
        (made,) = artifacts(agent.call("act", steps=[["write", "out.txt", "made"]]))
    with proxy(tmp_path, AUTO) as ground:
        agent.ground = ground
        assert agent.post(id=50, method="ping").status == 404, "so that its client begins anew"
        agent = Agent(ground, "auto")
        uri = made["artifact_uri"]
        assert agent.text("act", steps=[["read", handle], ["read", uri]], text="{0} {1}") == "uploaded made"
        assert agent.request("resources/read", {"uri": uri})["contents"][0]["text"] == "made"
        path = urlsplit(made["download_url"])
        assert ground.fetch(f"{path.path}?{path.query}").body == b"made"


def test_w28_health_is_that_of_the_proxy(ground: Ground, tmp_path: Path) -> None:
    """Neither what it keeps nor where, nor a server that cannot be started, makes it unwell; and it stays short."""
    with proxy(tmp_path, AUTO, SICK, is_lasting=False) as unlasting:
        assert unlasting.fetch("/healthz").status == 200
    short = len(ground.fetch("/healthz").body)
    for _ in range(5):
        ground.fetch("/mcp/sick", method="POST", headers=HEADERS, body=INITIALIZE)
    assert ground.fetch("/readyz").status == 503, "that is for another page to say"
    for number in range(5):
        Agent(ground, "auto").upload(f"{number}.txt")
    reply = ground.fetch("/healthz")
    assert reply.status == 200
    assert len(reply.body) < short + 10
    assert ground.is_well()


def test_w30_structure_alone_still_says_where_the_file_is(ground: Ground) -> None:
    """A client that shows its model nothing but the structured result has the URI there."""
    agent = Agent(ground, "auto")
    structure = {"saved": {"path": "{0}", "size": 1}, "note": "wrote {0}"}
    result = agent.call("act", steps=[["write", "a.txt", "x"]], result={"content": [], "structuredContent": structure})
    (made,) = artifacts(result)
    uri = made["artifact_uri"]
    assert result["structuredContent"] == {"saved": {"path": uri, "size": 1}, "note": f"wrote {uri}"}
    assert agent.request("resources/read", {"uri": uri})["contents"][0]["text"] == "x"


def test_w31_large_files_have_what_they_need(ground: Ground) -> None:
    """One request without a form, its size checked by the head, what can be asked of a file without fetching it, parts
    of it, and until when it is there."""
    agent = Agent(ground, "auto")
    handle = agent.upload("a.bin", b"0123456789")
    assert agent.text("act", steps=[["read", handle]], text="{0}") == "0123456789"
    (made,) = artifacts(agent.call("act", steps=[["write", "out.txt", "0123456789"]]))
    assert made["expires_at"].endswith("Z")
    url = made["download_url"]
    head = ground.fetch(url, method="HEAD")
    assert (head.status, head.headers["content-length"], head.body) == (200, "10", b"")
    assert head.headers["accept-ranges"] == "bytes"
    part = ground.fetch(url, headers={"range": "bytes=2-4"})
    assert (part.status, part.body, part.headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    (long,) = artifacts(agent.call("act", steps=[["write", "long.txt", "x" * 5000]]))
    parts = ground.fetch(long["download_url"], headers={"range": "bytes=0-1,-2"})
    assert parts.status == 206
    assert parts.headers["content-type"].startswith("multipart/byteranges")
    assert len(parts.body) < 1000
    same = ground.fetch(url, headers={"if-none-match": head.headers["etag"]})
    assert same.status == 304
    assert dict(parse_qsl(urlsplit(url).query)).keys() == {"mcp_artifact_exp", "mcp_artifact_sig"}


def test_w31_an_upload_that_was_cut_off_goes_on_where_it_was(ground: Ground) -> None:
    """It is no handle before it is whole, and its size is judged before a byte is sent."""
    agent = Agent(ground, "auto")
    link, tus = agent.link(), {"tus-resumable": "1.0.0"}
    assert ground.fetch(link, method="POST", headers={**tus, "upload-length": str(2 << 20)}, body=b"").status == 413
    made = ground.fetch(link, method="POST", headers={**tus, "upload-length": "10"}, body=b"")
    assert made.status == 201
    there = made.headers["location"]
    patch = {**tus, "content-type": "application/offset+octet-stream"}
    first = ground.fetch(there, method="PATCH", headers={**patch, "upload-offset": "0"}, body=b"01234")
    assert (first.status, "upload-handle" in first.headers) == (204, False)
    assert ground.fetch(there, method="HEAD", headers=tus).headers["upload-offset"] == "5"
    assert ground.fetch(there, method="PATCH", headers={**patch, "upload-offset": "3"}, body=b"34567").status == 409
    last = ground.fetch(there, method="PATCH", headers={**patch, "upload-offset": "5"}, body=b"56789")
    assert agent.text("act", steps=[["read", last.headers["upload-handle"]]], text="{0}") == "0123456789"


# --- Roots ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["auto", "adapted"])
def test_a_client_that_names_the_whole_disk_as_its_root_gains_nothing(id: str, ground: Ground) -> None:
    """The server adopts the roots it is told of. It is told of its session's folders, whatever the client's are."""
    agent = Agent(ground, id, roots=["file:///", "file:///etc"])
    told: list[str] = []

    def is_told() -> bool:
        told[:] = json.loads(agent.text("act", steps=[["roots"]], text="{0}"))
        return bool(told)

    until(is_told, "the server was told of no roots")
    folder = str(ground.root / "workspaces") + "/"
    shown = agent.text("act", steps=[["roots"]], text="{0}")
    assert "file:///etc" not in shown
    for root in told:
        assert root not in ("/", "/etc")
        assert not root.startswith("/") or root.startswith(folder)
    handle = agent.upload("mine.txt", b"mine")
    if id == "auto":  # where arguments are not all handles
        refused = agent.call("read", path="/etc/hostname")
        assert refused["isError"]
        assert "is outside of" in refused["content"][0]["text"]
    assert agent.text("read", path=handle) == "mine"


def test_limits_of_sessions_hold_for_uploads_too(tmp_path: Path) -> None:
    """A full house refuses the newcomer, and nobody else's file goes for it."""
    with proxy(tmp_path, AUTO, sessions=Sessions(max_total_session_size=1000, max_active=2)) as ground:
        one, other = Agent(ground, "auto"), Agent(ground, "auto")
        kept = one.upload("kept.txt", b"x" * 900)
        for _ in range(3):
            assert other.put("big.txt", b"y" * 1001).status in (413, 429, 507)
        assert one.text("act", steps=[["read", kept]], text="{0}") == "x" * 900
        refused = ground.fetch("/mcp/auto", method="POST", headers=HEADERS, body=INITIALIZE)
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
