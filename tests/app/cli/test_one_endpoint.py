"""Tests of several servers at one endpoint, as a person serves, wraps and checks them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import INITIALIZE, INITIALIZED, Run, Session, call_message, run
from isthmus.app.base.errors import ConfigError
from isthmus.app.cli.endpoints import endpoint_on_stdio
from isthmus.app.config.access_settings import Access
from isthmus.app.config.settings import Server, Settings, Upstream

PEERS = Path(__file__).parents[1] / "peers"
TOOLBOX = [sys.executable, str(PEERS / "toolbox.py")]
WRAPPED = ("--server", f"notes={shlex.join([*TOOLBOX, 'notes'])}", "--server", shlex.join(TOOLBOX))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a client with two servers, and one that no profile can hold."""
    path = tmp_path_factory.mktemp("one") / "mcp.json"
    servers: dict[str, Any] = {id: {"command": TOOLBOX[0], "args": [TOOLBOX[1], id]} for id in ("notes", "files")}
    web = {"id": "web", "inspect": False, "upstream": {"url": "http://127.0.0.1:9/mcp"}}
    document = {"core": {"port": 0}, "storage": {"root": "stored"}, "servers": [web], "mcpServers": servers}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def served(file: Path) -> Iterator[Run]:
    with Run("serve", "--quiet-start", "--all", str(file)) as started:
        started.wait_line("^connect a client")
        yield started


def names(session: Session) -> set[str]:
    listed = session.post({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
    return {tool["name"] for tool in listed["result"]["tools"]}


def test_the_url_of_the_one_endpoint_is_said_first(served: Run) -> None:
    first, second, third, *_ = served.stdout.splitlines()
    url = first.removeprefix("one endpoint for 2 servers: ")
    assert url.startswith("http://127.0.0.1:")
    assert second == "  without web, which has inspect: false"
    assert third.startswith("isthmus ") and third.endswith(f" listens on {url.removesuffix('/mcp')}")
    assert f'{{"mcpServers":{{"isthmus":{{"url":"{url}"}}}}}}' in served.stdout
    assert "/mcp/notes" not in served.stdout


def test_all_servers_are_used_at_that_url_and_each_keeps_its_own(served: Run) -> None:
    url = served.stdout.split("\n", 1)[0].rpartition(" ")[2]
    session = Session(url)
    assert session.hello["result"]["serverInfo"]["name"] == "all"
    assert {"notes__echo", "files__echo"} <= names(session)
    assert session.call("files__echo", text="hi") == "files says hi"
    assert names(Session(f"{url}/notes")) == {name.partition("__")[2] for name in names(session)}


@pytest.mark.parametrize(
    ("arguments", "tool", "name"),
    [
        (("serve", "--all", "--stdio", "FILE"), "notes__echo", "all"),
        (("serve", "--stdio", "files", "FILE"), "echo", "files"),
        (("wrap", "--listen", "stdio", *WRAPPED), "notes__echo", "all"),
    ],
    ids=["all", "one server", "wrap"],
)
def test_one_client_is_served_on_stdio(arguments: tuple[str, ...], tool: str, name: str, file: Path) -> None:
    """Stdout has messages alone, and the end of stdin ends the command with 0. Another one serves the same file."""
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    with Run(*given) as near:
        near.write(INITIALIZE, INITIALIZED, call_message(2, tool, text="over"), end=True)
        assert near.wait_exit() == 0
        messages = list(map(json.loads, near.stdout.splitlines()))
    answers = {message["id"]: message["result"] for message in messages if "id" in message}
    assert answers[1]["serverInfo"]["name"] == name
    assert answers[2]["content"][0]["text"].endswith(" says over")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "fils",
            "got --stdio fils, expected a profile or a server: all, notes, files, web, guarded; the nearest is files",
        ),
        ("web", "got --stdio web, which has inspect: false, which hands requests on as they are, over HTTP only"),
        ("guarded", "got --stdio guarded, whose access.groups let in no client on stdio, as nobody says who it is"),
    ],
)
def test_what_cannot_be_served_on_stdio_is_said(name: str, said: str) -> None:
    url = Upstream(url="http://h")
    servers = [Server(id=id, upstream=url) for id in ("notes", "files")]
    servers += [Server(id="web", upstream=url, inspect=False)]
    servers += [Server(id="guarded", upstream=url, access=Access(groups=("staff",)))]
    with pytest.raises(ConfigError) as refused:
        endpoint_on_stdio(Settings(servers=tuple(servers)), name)
    assert str(refused.value) == said


def test_several_servers_are_wrapped_over_http() -> None:
    with Run("wrap", "--quiet-start", "--listen", "127.0.0.1:0", *WRAPPED) as wrapped:
        url = wrapped.wait_line("^one endpoint for 2 servers: (.*)")[1]
        session = Session(url)
        assert {"notes__echo", "toolbox-py__echo"} <= names(session)
        assert session.call("notes__echo", text="hi") == "notes says hi"


def test_check_says_what_each_profile_lists(tmp_path: Path) -> None:
    long = f"search_{'everything_' * 4}"
    tool = {"name": long, "description": "Searches.", "inputSchema": {"type": "object"}}
    for id in ("a", "b"):
        listed = {"tools": [tool], "prompts": [{"name": "ask"}], "resources": [{"uri": "memo:x", "name": "x"}]}
        (tmp_path / f"{id}.json").write_text(json.dumps(listed if id == "a" else {}))
    servers = [
        {
            "id": id,
            "upstream": {"command": [sys.executable, str(PEERS / "changing.py"), str(tmp_path / f"{file}.json")]},
        }
        for id, file in (("company-internal-notes", "a"), ("company-internal-wiki", "b"))
    ]
    profile = {"id": "dev", "servers": [{"id": "company-internal-notes", "alias": "n"}]}
    (tmp_path / "isthmus.json").write_text(json.dumps({"servers": servers, "profiles": [profile]}))
    code, out, _ = run("check", cwd=tmp_path)
    assert code == 0
    all_lines, dev_lines = (part.splitlines() for part in out.partition("  profile all\n")[2].split("  profile dev\n"))
    assert all_lines[0] == "    at      /mcp, /sse and /ws"
    assert any("company-internal both" in line for line in all_lines), "what would be the alias of two"
    assert dev_lines[:5] == [
        "    at      /mcp/dev, /sse/dev and /ws/dev",
        "    servers company-internal-notes",
        "    tools   1: 1 n__…",
        "    prompts 1: 1 n__…",
        "    uris    1: 1 n+…",
    ]
    assert " ".join(dev_lines[5:7]).startswith("    renamed n__search_everything_ever")
    assert f"{long} of company-internal-notes" in " ".join(line.strip() for line in dev_lines[5:8])
    assert any(line.startswith("    tokens  about ") for line in dev_lines)
    assert all(len(line) <= 80 for line in (*all_lines, *dev_lines[:9]))
