"""Tests of one endpoint that shows many real servers, one of which is dead and one hangs, to official clients.

Five workshops, written on the official SDKs, have the same names and URIs. Each client uses all of one of them, in the
revision of its own era (peers/README.md). Beside them are server-everything and server-filesystem.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from filing import post
from raw_clients import HttpClient
from rig import (
    EVERYTHING,
    FILESYSTEM,
    MARKITDOWN,
    PLAYWRIGHT,
    PYTHON_1,
    Proxy,
    command_of,
    require,
    run_client,
    serve,
    start_server,
)
from test_sdk_pairs import HANDSHAKE, SEEN, STATELESS, VISITORS, WORKSHOPS, Workshop

pytestmark = pytest.mark.real

ERAS: Final = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])

ALIASES: Final = {
    "python-1": "py1",
    "python-2": "py2",
    "typescript-1": "ts1",
    "typescript-2-legacy": "old",
    "typescript-2-modern": "new",
}
"""The workshops and what stands before their names. All but `ts1` are at a URL."""
VISITS: Final = (
    ("python-1", "typescript-2-modern"),
    ("python-2", "typescript-1"),
    ("typescript-1", "python-2"),
    ("typescript-2", "python-1"),
)
"""Clients and the workshops that they use: each era of clients with each era of servers. With THOROUGH set, all."""
LIST_WAIT_S: Final = 1.0
"""The time that lists wait for the dead and the hanging server, beside one that is there already."""
CHOSEN: Final = list(itertools.product(VISITORS, ALIASES)) if os.environ.get("THOROUGH") else VISITS
PATIENCE_LISTS: Final = 60
"""Lists that are asked for until no server is missing. A list waits for `LIST_WAIT_S` while one is."""
LONG: Final = "all__trigger-long-running-operation"
TOOL_COUNTS: Final = {"all": 10, "fs": 10} | dict.fromkeys(ALIASES.values(), len(SEEN["tools"]))
"""The least number of tools of each server."""
LATE: Final = Path(__file__).parent / "peers" / "late_python1.py"
TAKING_FILES: Final = ("mark", "web")
CHANGING: Final = Path(__file__).parents[1] / "app" / "peers" / "changing.py"
SLOPPY: Final = {
    "tools": [
        {"name": "kept", "inputSchema": {"type": "object", "properties": {"any": True}, "required": None}},
        {"name": "bare", "title": None},
        {"name": "broken", "inputSchema": True},
        {"name": "odd", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": "yes"}},
    ],
    "prompts": [{"name": "kept", "description": None}, {"name": "broken", "arguments": {"who": {}}}],
    "resources": [{"uri": "memo:kept", "name": "kept", "mimeType": None}, {"uri": "memo:broken"}],
    "resourceTemplates": [{"uriTemplate": "memo:{x}", "name": 1}],
}
"""The lists of a server with entries for which official clients refuse the whole list."""


class Place(NamedTuple):
    proxy: Proxy
    folder: Path

    def run(self, kind: str, session: Mapping[str, Any], profile: str = "many") -> list[dict[str, Any]]:
        """Returns the records of an official client."""
        return run_client(kind, self.proxy.url_of(profile), [session], folder=self.folder)

    @contextlib.contextmanager
    def client(self, profile: str, era: str = HANDSHAKE) -> Iterator[RawClient]:
        client = (RawClient if era == HANDSHAKE else StatelessClient)(self.proxy.url_of(profile))
        try:
            yield client
        finally:
            client.close()


class RawClient(HttpClient):
    """A client whose requests are open at the same time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._ids = itertools.count(1)
        self.begin()

    def begin(self) -> None:
        about = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        self.hello = self.answer(self.ask("initialize", about))["result"]
        self.confirm(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    @property
    def instructions(self) -> str:
        return str(self.hello["instructions"])

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        number = next(self._ids)
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}).encode())
        return number

    def call(self, tool: str, **arguments: Any) -> int:
        meta = {"progressToken": "p"}
        return self.ask("tools/call", {"name": tool, "arguments": arguments, "_meta": meta})

    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(received.message) for received in list(self.received)]

    def is_answered(self, number: int) -> bool:
        return any(frame.get("id") == number and "method" not in frame for frame in self.frames())

    def answer(self, number: int) -> dict[str, Any]:
        assert self.wait_until(lambda: self.is_answered(number)), f"no answer to request {number}"
        return next(frame for frame in self.frames() if frame.get("id") == number and "method" not in frame)


class StatelessClient(RawClient):
    """A client of 2026-07-28 that listens to changes of the list of tools."""

    def begin(self) -> None:
        number = self.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert self.wait_until(lambda: bool(self.frames())), f"no answer to request {number}"

    @property
    def instructions(self) -> str:
        return str(self.answer(self.ask("server/discover"))["result"]["instructions"])

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        given = dict(params or {})
        told = {"protocolVersion": STATELESS, "clientCapabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        meta = given.get("_meta", {}) | {f"io.modelcontextprotocol/{key}": value for key, value in told.items()}
        return super().ask(method, given | {"_meta": meta})

    def _post(self, message: bytes, stream: str) -> None:
        asked = json.loads(message)
        headers = self._headers | {"MCP-Protocol-Version": STATELESS, "Mcp-Method": asked["method"]}
        if "name" in asked["params"]:
            headers["Mcp-Name"] = asked["params"]["name"]
        with self.request("POST", self._path, headers, message) as response:
            if response.getheader("Content-Type") == "application/json":
                self.take(stream, response.read())
            for _, data in self.events(response):
                self.take(stream, data)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A gateway in front of all servers. Those at URLs have started."""
    folder = tmp_path_factory.mktemp("profiles")
    with contextlib.ExitStack() as stack:
        processes = {
            alias: start_server([*workshop.command, "http", *workshop.arguments], "mcp", folder=folder)
            for alias, workshop in ((alias, WORKSHOPS[name]) for name, alias in ALIASES.items())
            if alias != "ts1"
        }
        for process, _ in processes.values():
            stack.callback(process.clean_up)
        (folder / "shown").mkdir()
        (folder / "shown" / "hello.txt").write_text("from the filesystem")
        config = folder / "many.json"
        config.write_text(json.dumps(settings(folder, {alias: url for alias, (_, url) in processes.items()})))
        yield Place(stack.enter_context(serve(config, folder=folder)), folder)


MOVED: Final = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("after", "n" * 58)]}


def settings(folder: Path, urls: Mapping[str, str]) -> dict[str, Any]:
    commands: dict[str, list[str | Path]] = {
        "ts1": command_line(WORKSHOPS["typescript-1"]),
        "all": ["node", require(EVERYTHING).resolve(), "stdio"],
        "fs": ["node", require(FILESYSTEM).resolve(), folder / "shown"],
        "sloppy": [sys.executable, CHANGING, folder / "sloppy.json"],
        "moving": [sys.executable, CHANGING, folder / "moving.json"],
        "dead": [sys.executable, "-c", "raise SystemExit(3)"],
        "hanging": [sys.executable, "-c", "import sys; sys.stdin.read()"],
        "late": [require(PYTHON_1), LATE, "3", "0"],
        "slow": [require(PYTHON_1), LATE, "0", "3"],
        "mark": [require(MARKITDOWN)],
        "web": [require(PLAYWRIGHT), "--headless"],
    }
    (folder / "sloppy.json").write_text(json.dumps(SLOPPY))
    servers = [{"id": alias, "upstream": {"url": url}} for alias, url in urls.items()]
    servers += [{"id": id, "upstream": {"command": list(map(str, words))}, "warm": 0} for id, words in commands.items()]
    servers = [server | ({"files": "auto"} if server["id"] in TAKING_FILES else {}) for server in servers]
    special = {"dead", "hanging", "moving", "late", "slow", *TAKING_FILES}
    healthy = [server["id"] for server in servers if server["id"] not in special]
    profiles = [
        {"id": "workshops", "servers": [*ALIASES.values(), "sloppy"], "list_wait_seconds": 600},
        {"id": "many", "servers": healthy, "list_wait_seconds": 600},
        {"id": "wounded", "servers": ["py1", "dead", "hanging"], "list_wait_seconds": LIST_WAIT_S},
        {"id": "patient", "servers": [*healthy, "dead", "hanging"], "list_wait_seconds": 600},
        {"id": "changing", "servers": ["moving"]},
        {"id": "tardy", "servers": ["py1", "late", "slow"], "list_wait_seconds": LIST_WAIT_S},
        {"id": "files", "servers": [*TAKING_FILES, "fs"], "list_wait_seconds": 600},
        {"id": "down", "servers": ["dead", "hanging"], "list_wait_seconds": 0.2},
    ]
    return {"core": {"port": 0}, "servers": servers, "profiles": profiles}


def command_line(workshop: Workshop) -> list[str | Path]:
    return [*workshop.command, "stdio", *workshop.arguments]


@pytest.mark.parametrize(("client", "server"), CHOSEN, ids=map("--".join, CHOSEN))
def test_a_client_uses_one_server_of_many(place: Place, client: str, server: str) -> None:
    """Every feature arrives in the names of the profile: questions, progress, log messages and changes of the server
    that is used, and of no other. A server that breaks the schema in its lists costs nobody a list."""
    visitor, alias = VISITORS[client], ALIASES[server]
    seen = dict(place.run(visitor.script, {**visitor.session, "alias": alias}, "workshops")[0])
    assert seen.pop("revision") == visitor.revisions[0]
    assert seen.pop("server") == "workshops"
    assert seen.pop("missing")["code"] in (-32002, -32602)
    names = seen.pop("tools")
    assert names == sorted(names)
    assert {name.removeprefix(f"{alias}__") for name in names if name.startswith(f"{alias}__")} == set(SEEN["tools"])
    assert [name for name in names if name.startswith("sloppy__")] == ["sloppy__bare", "sloppy__kept"]
    # The server says that its tools have changed, but they have not: a profile need not pass that on.
    assert set(seen.pop("changes")) - {"tools"} == {f"{alias}+note://one"}
    assert seen.pop("asked") == [f"[{alias}] Which colour?", "well?", "roots"]
    assert seen == {name: SEEN[name] for name in SEEN if name not in ("server", "tools", "changes", "asked")}


PLAN: Final = [
    {"op": "tools"},
    {"op": "resources"},
    {"op": "templates"},
    {"op": "prompts"},
    {"op": "read", "uri": "all+demo://resource/dynamic/text/3"},
    {"op": "call", "name": "all__get-resource-links", "arguments": {"count": 2}},
    {"op": "complete", "ref": {"type": "ref/prompt", "name": "all__completable-prompt"}}
    | {"argument": {"name": "department", "value": "S"}},
    {"op": "complete", "ref": {"type": "ref/resource", "uri": "all+demo://resource/dynamic/text/{resourceId}"}}
    | {"argument": {"name": "resourceId", "value": "4"}},
    {"op": "prompt", "name": "all__args-prompt", "arguments": {"city": "Oslo"}},
    {"op": "level", "level": "debug"},
    {"op": "call", "name": "all__toggle-simulated-logging", "arguments": {}},
    {"op": "await", "method": "notifications/message", "contains": '"all'},
    {"op": "call", "name": "fs__read_text_file", "arguments": {"path": "hello.txt"}},
    {"op": "call", "name": "fs__list_allowed_directories", "arguments": {}},
    {"op": "read", "uri": "sloppy+memo:kept"},
    {"op": "call", "name": "get-sum", "arguments": {}},
]


@pytest.fixture(scope="module")
def records(place: Place) -> list[dict[str, Any]]:
    return place.run("typescript-1", {"capabilities": "none", "steps": PLAN})


def result(records: list[dict[str, Any]], number: int) -> Any:
    (found,) = [record for record in records if record["kind"] == "step" and record["number"] == number]
    assert "result" in found, found
    return found["result"]


def test_lists_have_the_entries_of_all_servers(records: list[dict[str, Any]]) -> None:
    tools = [tool["name"] for tool in result(records, 0)]
    assert tools == sorted(set(tools))
    for alias, count in TOOL_COUNTS.items():
        assert sum(name.startswith(f"{alias}__") for name in tools) >= count, alias
    uris = [resource["uri"] for resource in result(records, 1)]
    assert [uri for uri in uris if uri.startswith("sloppy+")] == ["sloppy+memo:kept"]
    assert {f"{alias}+note://one" for alias in ALIASES.values()} <= set(uris)
    templates = [template["uriTemplate"] for template in result(records, 2)]
    assert "all+demo://resource/dynamic/text/{resourceId}" in templates
    prompts = [prompt["name"] for prompt in result(records, 3)]
    assert "sloppy__kept" in prompts and "sloppy__broken" not in prompts
    assert {f"{alias}__greet" for alias in ALIASES.values()} | {"all__args-prompt"} <= set(prompts)


def test_resources_prompts_and_completions_are_those_of_their_server(records: list[dict[str, Any]]) -> None:
    (content,) = result(records, 4)["contents"]
    assert content["uri"] == "all+demo://resource/dynamic/text/3"
    links = [block for block in result(records, 5)["content"] if block["type"] == "resource_link"]
    assert len(links) == 2
    assert all(link["uri"].startswith("all+demo://resource/") for link in links)
    assert result(records, 14)["contents"] == [{"uri": "sloppy+memo:kept", "text": "read"}]
    assert result(records, 6)["completion"]["values"] == ["Sales", "Support"]
    assert result(records, 7)["completion"]["values"] == ["4"]
    assert "Oslo" in json.dumps(result(records, 8))


def test_a_raw_name_is_refused_with_the_name_that_it_may_mean(records: list[dict[str, Any]]) -> None:
    (found,) = [record for record in records if record["kind"] == "step" and record["number"] == 15]
    assert found["error"]["code"] == -32602
    assert "all__get-sum" in json.dumps(found["error"])


@ERAS
def test_a_list_that_differs_is_told_of(place: Place, era: str) -> None:
    """The server says so before it answers a call. A name that is too long is cut."""
    lists = place.folder / "moving.json"
    lists.write_text(json.dumps({"tools": [{"name": "before"}]}))
    with place.client("changing", era) as client:
        tools = client.answer(client.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["moving__before"]
        lists.write_text(json.dumps(MOVED))
        client.answer(client.call("moving__before"))
        changed = "notifications/tools/list_changed"
        assert client.wait_until(lambda: any(frame.get("method") == changed for frame in client.frames()))
        after, long = (tool["name"] for tool in client.answer(client.ask("tools/list"))["result"]["tools"])
        assert after == "moving__after"
        assert len(long) <= 50
        answered = client.answer(client.call(long))
        assert answered["result"]["content"][0]["text"] == f"{'n' * 58} ran"


def test_log_messages_say_which_server_they_are_of(records: list[dict[str, Any]]) -> None:
    told = [record for record in records if record["kind"] == "notified"]
    logs = [record["params"] for record in told if record["method"] == "notifications/message"]
    assert logs
    assert {log["logger"].partition("/")[0] for log in logs} == {"all"}


@ERAS
def test_a_list_without_the_dead_and_the_hanging_server_says_so(place: Place, era: str) -> None:
    """The hanging server never answers, so the list came without waiting for it."""
    with place.client("wounded", era) as client:
        assert "result" in client.answer(client.call("py1__echo", text="is there"))
        found = client.answer(client.ask("tools/list"))["result"]
        assert {tool["name"].partition("__")[0] for tool in found["tools"]} == {"py1"}
        assert set(found["_meta"]["dev.isthmus/servers"]) == {"dead", "hanging"}


def test_calls_do_not_wait_for_a_list_that_waits(place: Place) -> None:
    with place.client("patient") as client:
        listing = client.ask("tools/list")
        answers = [client.answer(client.call(f"{alias}__echo", text=alias)) for alias in ALIASES.values()]
        assert [answer["result"]["content"][0]["text"] for answer in answers] == list(ALIASES.values())
        assert not client.is_answered(listing)


@ERAS
def test_no_list_is_an_error_if_all_servers_are_down(place: Place, era: str) -> None:
    with place.client("down", era) as client:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            error = client.answer(client.ask(method))["error"]
            assert error["code"] == -31004
            assert set(error["data"]["servers"]) == {"dead", "hanging"}
        assert client.answer(client.call("dead__anything"))["error"]["code"] == -31004


@ERAS
def test_servers_that_start_or_list_late_are_missing_until_they_have_answered(place: Place, era: str) -> None:
    with place.client("tardy", era) as client:
        first = client.answer(client.ask("tools/list"))["result"]
        assert set(first["_meta"]["dev.isthmus/servers"]) == {"late", "slow"}
        assert "result" in client.answer(client.call("py1__echo", text="is there"))
        assert client.answer(client.call("late__echo", text="late"))["result"]["content"][0]["text"] == "late"

        def is_whole() -> bool:
            found = client.answer(client.ask("tools/list"))["result"]
            return {tool["name"].partition("__")[0] for tool in found["tools"]} == {"py1", "late", "slow"}

        assert any(is_whole() for _ in range(PATIENCE_LISTS)), "each list waits for what is missing"


def test_a_file_uploaded_for_one_server_is_read_by_another(place: Place) -> None:
    with place.client("files") as client:
        tools = client.answer(client.ask("tools/list"))["result"]["tools"]
        assert {tool["name"].partition("__")[0] for tool in tools} == {"mark", "web", "fs"}
        offer = client.answer(client.call("web__web_get_upload_url"))["result"]["structuredContent"]
        reply = post(offer["upload_url"], ("table.csv", b"city,river\nUlm,Danube\n"))
        read = client.answer(client.call("mark__convert_to_markdown", uri=reply.json["upload_handle"]))["result"]
        assert "| Ulm | Danube |" in read["content"][0]["text"]


@ERAS
def test_a_server_that_dies_in_a_call_fails_that_call_alone(place: Place, era: str) -> None:
    """The next call starts the server again, in the same session."""
    with place.client("many", era) as client:
        before = set(everything_pids(place.proxy))
        doomed = client.call(LONG, duration=600, steps=600)
        assert client.wait_until(
            lambda: any(frame.get("method") == "notifications/progress" for frame in client.frames())
        )
        (pid,) = set(everything_pids(place.proxy)) - before
        form = client.call("ts1__count", to=3)
        os.kill(pid, signal.SIGKILL)
        assert client.answer(doomed)["error"]["code"] == -31001
        assert "result" in client.answer(form)
        assert "result" in client.answer(client.call("py1__echo", text="here"))
        again = client.answer(client.call("all__echo", message="again"))
        assert "again" in again["result"]["content"][0]["text"]
    with place.client("many", era) as other:
        assert "## all\n\n" in other.instructions


def everything_pids(proxy: Proxy) -> list[int]:
    return [pid for pid in proxy.server_pids if "server-everything" in command_of(pid)]
