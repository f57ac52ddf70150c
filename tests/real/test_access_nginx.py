"""nginx in front of isthmus asks people for their password, and names them in a header that counts from it alone."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from filing import Reply, artifacts_of, content_of, fetch, gateway, session, texts
from providers import file_server
from rig import free_ports, launched, listens, run_client, until

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")]

NGINX: Final = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    map $user $groups {{ alice "staff, admin"; default staff; }}
    server {{
        listen 127.0.0.1:{people};
        location / {{
            auth_basic "people"; auth_basic_user_file {folder}/people; add_header X-User $remote_user;
            root {folder}/pages;
        }}
    }}
    server {{
        listen 127.0.0.1:{front};
        proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
        proxy_buffering off; proxy_bind {source};
        location = /asked {{
            internal; proxy_pass http://127.0.0.1:{people}/asked; proxy_bind off;
            proxy_pass_request_body off; proxy_set_header Content-Length "";
        }}
        location / {{
            auth_request /asked; auth_request_set $user $upstream_http_x_user;
            proxy_set_header Connection ""; proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-User $user; proxy_set_header X-Forwarded-Groups $groups;
            proxy_pass {behind};
        }}
        location ~ ^/(upload|artifacts)/ {{
            proxy_set_header Connection ""; proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-User ""; proxy_set_header X-Forwarded-Groups "";
            proxy_pass {behind};
        }}
    }}
}}
"""
PASSWORD: Final = "a password"
LISTING: Final = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()


class World(NamedTuple):
    """nginx, and isthmus behind it with the server `files`, and `operations` for the group `admin`."""

    front: str
    behind: str


@pytest.fixture(params=["tcp", "unix"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    ports = dict(zip(("people", "front"), free_ports(2), strict=True))
    front = f"http://127.0.0.1:{ports['front']}"
    peers, socket = (["127.0.0.2"], None) if request.param == "tcp" else (["unix"], str(tmp_path / "socket"))
    core = {"public_base_url": front, **({"unix_socket": socket} if socket else {})}
    servers = [file_server(), {**file_server("operations"), "access": {"groups": ["admin"]}}]
    auth = {"proxy": {"peers": peers, "groups": "X-Forwarded-Groups"}}
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/asked").write_text("")
    (tmp_path / "people").write_text("".join(f"{name}:{{PLAIN}}{PASSWORD}\n" for name in ("alice", "bob")))
    nginx = shutil.which("nginx")
    assert nginx is not None
    with gateway(tmp_path, {"core": core, "auth": auth, "servers": servers}) as proxy:
        behind = f"http://unix:{socket}:" if socket else proxy.base_url
        config = tmp_path / "nginx.conf"
        source = "off" if socket else "127.0.0.2"
        config.write_text(NGINX.format(folder=tmp_path, behind=behind, source=source, **ports))
        with launched([nginx, "-c", config, "-p", tmp_path], folder=tmp_path, code=None) as process:
            until(lambda: all(map(listens, ports.values())), f"nginx listens, see {process.log}")
            yield World(front, proxy.base_url)


def known(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def ask(url: str, headers: dict[str, str]) -> Reply:
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    return fetch(url, method="POST", headers={**usual, **headers}, body=LISTING)


def test_people_are_who_nginx_says(world: World, tmp_path: Path) -> None:
    files = f"{world.front}/mcp/files"
    with session(files, known("alice")) as alice, session(files, known("bob")) as bob:
        (handle,) = alice.upload(("one.txt", b"handed in"))
        (artifact,) = artifacts_of(alice.call("by_argument", {"output": "made.txt", "text": "made"}))
        assert "handed in" in texts(alice.call("take_one", {"file": handle}))[0]
        assert content_of(artifact) == b"made"
        assert "error" in bob.exchange("resources/read", {"uri": artifact["artifact_uri"]})
        assert ask(files, {**known("bob"), "Mcp-Session-Id": alice.session_id}).status == 404
        assert ask(files, {**known("alice"), "Mcp-Session-Id": alice.session_id}).status == 200
    operations = f"{world.front}/mcp/operations"
    with session(operations, known("alice")) as alice:
        assert alice.request("tools/list")["tools"]
    assert ask(operations, known("bob")).status == 404
    plan: list[dict[str, Any]] = [{"capabilities": "none", "steps": [{"op": "tools"}]}]
    url = files.replace("//", f"//bob:{PASSWORD.replace(' ', '%20')}@")
    events = run_client("python-1", url, plan, folder=tmp_path)
    assert [event["op"] for event in events if "result" in event] == ["tools"], events


def test_nobody_else_says_who_people_are(world: World) -> None:
    """A client of nginx has its own header replaced. A client that goes past nginx is refused with it, and without."""
    files, operations = (f"{world.front}/mcp/{name}" for name in ("files", "operations"))
    forged = {"X-Forwarded-User": "alice", "X-Forwarded-Groups": "admin"}
    assert ask(files, forged).status == 401
    assert ask(files, known("alice", "a guess")).status == 401
    assert ask(operations, {**known("bob"), **forged}).status == 404
    for headers in (forged, {"X-Forwarded-Groups": "admin"}, {}, known("alice")):
        for path in ("/mcp/files", "/servers"):
            reply = ask(world.behind + path, headers)
            assert reply.status == 401, (path, headers, reply)
            assert (b"no proxy of auth.proxy.peers" in reply.body) is ("X-Forwarded-Groups" in headers)
