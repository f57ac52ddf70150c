"""Tests that official clients get the same from server-everything directly and through Isthmus.

That server shows every feature of the protocol. Each client carries out one plan directly and through the proxy, on
some pairs of transports, and the recordings are compared, except for random values and times. Further tests assert the
content of the recordings.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest
from rig import EVERYTHING, everything_over_http, everything_over_sse, run_client, stdio_wrap, wrap

pytestmark = pytest.mark.real

CLIENTS: Final = ("python-1", "python-2", "typescript-1")
TASK_CLIENTS: Final = ("python-1", "typescript-1")
"""Clients that know the tasks of revision 2025-11-25."""
GOERS: Final = {
    "http-to-stdio": "typescript-1",
    "http-to-http": "python-2",
    "http-to-sse": "typescript-1",
    "http-to-socket": "typescript-1",
    "stdio-to-stdio": "typescript-1",
    "stdio-to-http": "typescript-1",
    "stdio-to-sse": "typescript-1",
    "stdio-to-socket": "typescript-1",
    "sse-to-stdio": "typescript-1",
    "sse-to-http": "typescript-1",
    "sse-to-sse": "typescript-1",
    "sse-to-socket": "typescript-1",
    "socket-to-stdio": "python-1",
    "socket-to-http": "python-1",
    "socket-to-sse": "python-1",
    "socket-to-socket": "python-1",
    "transparent": "typescript-1",
}
"""The client for each way: mostly the one that starts fastest. With THOROUGH set, each client goes each way, except
that only the first one knows WebSockets."""

TASK_WAYS: Final = ("http-to-stdio", "stdio-to-http", "sse-to-sse", "socket-to-socket")
"""The ways with tasks: each transport once on either side. With THOROUGH set, all."""

USUAL_WAYS: Final = (*TASK_WAYS, "http-to-http", "transparent")
"""The ways without THOROUGH. `tests/matrix` goes all of them with raw peers."""

BASELINE: Final = {
    "http-to-stdio": "direct-stdio",
    "stdio-to-stdio": "direct-stdio",
    "stdio-to-http": "direct-http",
    "http-to-http": "direct-http",
    "http-to-sse": "direct-http",
    "stdio-to-sse": "direct-http",
    "sse-to-stdio": "direct-stdio",
    "sse-to-http": "direct-http",
    "sse-to-sse": "direct-http",
    "sse-to-socket": "direct-stdio",
    "http-to-socket": "direct-stdio",
    "stdio-to-socket": "direct-stdio",
    "socket-to-stdio": "direct-stdio",
    "socket-to-http": "direct-http",
    "socket-to-sse": "direct-http",
    "socket-to-socket": "direct-stdio",
    "transparent": "direct-http",
}
"""The direct connection that each way through the proxy is compared with. Ways are named by the two transports that
they join. On the last one the proxy does not parse messages."""

WORKERS: Final = 3
"""The number of clients at once. Much of their time goes into waiting for the server."""

# --- The plan ---------------------------------------------------------------------------------------------------------

Step = dict[str, Any]
TEXT_URI: Final = "demo://resource/dynamic/text/1"
AUTH_URL: Final = "https://example.com/auth"
LONG: Final = "trigger-long-running-operation"
DEPARTMENTS: Final = {"type": "ref/prompt", "name": "completable-prompt"}
MESSAGE: Final = 'snow \u2603, "quotes", back\\slash, null \u0000, face \U0001f600, line\u2028separator'

BARE_STEPS: Final[list[Step]] = [{"op": "tools"}]


def call(tool: str, **arguments: Any) -> Step:
    return {"op": "call", "name": tool, "arguments": arguments}


def wait_for(method: str, contains: str = "", count: int = 1) -> Step:
    return {"op": "await", "method": method, "contains": contains, "count": count}


def full_steps(run: str) -> list[Step]:
    """Returns the steps of a client with all capabilities that uses every feature. `run` keeps the stored data of runs
    apart."""
    packed = f"{run}.gz"
    return [
        # The server asks for the roots a moment after the handshake, so its messages have reached the client by then.
        wait_for("roots/list"),
        wait_for("notifications/message", "Roots updated"),
        {"op": "ping"},
        {"op": "tools"},
        {"op": "resources"},
        {"op": "templates"},
        {"op": "prompts"},
        call("echo", message=MESSAGE),
        call("get-sum", a=0.1, b=2e9),
        call("get-structured-content", location="Chicago"),
        call("get-tiny-image"),
        call("get-annotated-message", messageType="error", includeImage=True),
        call("get-resource-links", count=4),
        call("get-resource-reference", resourceType="Blob", resourceId=7),
        call("get-env"),
        call("gzip-file-as-resource", name=packed, data="data:text/plain;base64,aGVsbG8=", outputType="resourceLink"),
        wait_for("notifications/resources/list_changed"),
        {"op": "read", "uri": f"demo://resource/session/{packed}"},
        call("get-roots-list"),
        {"op": "roots_changed"},
        wait_for("notifications/message", "Roots updated", 2),
        {"op": "cancel", "name": LONG, "arguments": {"duration": 0.6, "steps": 3}},
        call(LONG, duration=0.8, steps=5) | {"progress": True},
        call("trigger-sampling-request", prompt="hi", maxTokens=20),
        call("trigger-elicitation-request"),
        call("trigger-url-elicitation", url=AUTH_URL, elicitationId="e1"),
        call("trigger-url-elicitation", url=AUTH_URL, elicitationId="e2", errorPath=True),
        {"op": "level", "level": "debug"},
        call("toggle-simulated-logging"),
        wait_for("notifications/message", "message"),
        call("toggle-simulated-logging"),
        {"op": "subscribe", "uri": TEXT_URI},
        wait_for("notifications/message", "Received Subscribe"),
        call("toggle-subscriber-updates"),
        wait_for("notifications/resources/updated", TEXT_URI),
        call("toggle-subscriber-updates"),
        {"op": "unsubscribe", "uri": TEXT_URI},
        wait_for("notifications/message", "Received Unsubscribe"),
        {"op": "read", "uri": TEXT_URI},
        {"op": "read", "uri": "demo://resource/static/document/features.md"},
        {"op": "read", "uri": "demo://nothing"},
        {"op": "prompt", "name": "simple-prompt"},
        {"op": "prompt", "name": "args-prompt", "arguments": {"city": "Oslo", "state": "Norway"}},
        {"op": "prompt", "name": "args-prompt"},
        {"op": "prompt", "name": "resource-prompt", "arguments": {"resourceType": "Text", "resourceId": "3"}},
        {"op": "prompt", "name": "nothing"},
        {"op": "complete", "ref": DEPARTMENTS, "argument": {"name": "department", "value": "S"}},
        {
            "op": "complete",
            "ref": DEPARTMENTS,
            "argument": {"name": "name", "value": ""},
            "context": {"department": "Sales"},
        },
        {
            "op": "complete",
            "ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
            "argument": {"name": "resourceId", "value": "12"},
        },
        call("nothing"),
        call("echo", message=3),
        {"op": "request", "method": "nothing/at-all", "params": {"a": 1}},
    ]


TASK_STEPS: Final[list[Step]] = [
    wait_for("notifications/message", "Roots updated"),
    {"op": "tools"},
    {"op": "task", "name": "simulate-research-query", "arguments": {"topic": "python", "ambiguous": True}},
    call("trigger-sampling-request-async", prompt="hi"),
    call("trigger-elicitation-request-async"),
]
"""The task of the server in which it asks questions, which the client answers as tasks."""

ALWAYS_TOOLS: Final = {
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    LONG,
}
ABILITY_TOOLS: Final = {
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-sampling-request",
    "trigger-url-elicitation",
}
TASK_TOOLS: Final = {"trigger-sampling-request-async", "trigger-elicitation-request-async"}


def goes(client: str, way: str) -> bool:
    """True if the client goes this way, through the proxy or directly for comparison."""
    if way.startswith("direct"):
        return any(baseline == way and goes(client, other) for other, baseline in BASELINE.items())
    if os.environ.get("THOROUGH"):
        return not way.startswith("socket") or client == GOERS[way]
    return client == GOERS[way] and way in USUAL_WAYS


def has_tasks(client: str, way: str) -> bool:
    """True if the client uses tasks on this way."""
    if way.startswith("direct"):
        return any(baseline == way and has_tasks(client, other) for other, baseline in BASELINE.items())
    return goes(client, way) and client in TASK_CLIENTS and (way in TASK_WAYS or bool(os.environ.get("THOROUGH")))


# --- Recordings -------------------------------------------------------------------------------------------------------


class Recording:
    """The messages of a client in one session."""

    def __init__(self, steps: Sequence[Step], events: Sequence[dict[str, Any]]) -> None:
        self.steps = list(steps)
        self.events = list(events)

    @property
    def initialize(self) -> dict[str, Any]:
        (result,) = (event["initialize"] for event in self.events if event["kind"] == "begin")
        assert isinstance(result, dict)
        return result

    @property
    def outcomes(self) -> list[tuple[Step, dict[str, Any]]]:
        """Returns each step with its `result` or `error`."""
        found = [event for event in self.events if event["kind"] == "step"]
        assert [event["number"] for event in found] == list(range(len(self.steps)))
        kept = ("result", "error", "trouble")
        return [(self.steps[event["number"]], {k: event[k] for k in kept if k in event}) for event in found]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Returns the server's requests and notifications, without progress."""
        return [event for event in self.events if event["kind"] in ("asked", "notified")]

    def outcome(self, *, op: str = "call", nth: int = 0, **facts: Any) -> dict[str, Any]:
        """Returns the outcome of the nth step with that op and those members."""
        wanted = {"op": op, **facts}
        found = [outcome for step, outcome in self.outcomes if step.items() >= wanted.items()]
        return found[nth]

    def text(self, tool: str, nth: int = 0) -> str:
        """Returns the text of a tool's result."""
        content = self.outcome(name=tool, nth=nth)["result"]["content"]
        return "\n".join(block["text"] for block in content if block["type"] == "text")

    def sent(self, method: str, contains: str = "") -> list[dict[str, Any]]:
        """Returns the params of the server's messages with that method and text."""
        found = [message["params"] for message in self.messages if message["method"] == method]
        return [params for params in found if contains in json.dumps(params)]


class Recordings:
    """All recordings. They are made at the same time, while the tests begin with the first."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._made: dict[tuple[str, str, str], Future[list[Recording]]] = {}

    def make(self, client: str, way: str, kind: str, target: Any, sessions: list[dict[str, Any]], folder: Any) -> None:
        self._made[client, way, kind] = self._pool.submit(_record, client, target, sessions, folder)

    def get(self, client: str, way: str, kind: str) -> Recording:
        """Returns a recording. `kind` is bare, full or tasks: the client's capabilities."""
        if kind == "tasks":
            return self._made[client, way, "tasks"].result()[0]
        bare, full = self._made[client, way, "usual"].result()
        return bare if kind == "bare" else full


def _record(client: str, target: Any, sessions: list[dict[str, Any]], folder: Any) -> list[Recording]:
    events = [event for event in run_client(client, target, sessions, folder=folder) if event["kind"] != "remark"]
    recordings = []
    for session in sessions:
        at = next(number for number, event in enumerate(events) if event["kind"] == "end")
        recordings.append(Recording(session["steps"], events[:at]))
        events = events[at + 1 :]
    assert not events
    return recordings


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recordings]:
    folder = tmp_path_factory.mktemp("everything")
    with contextlib.ExitStack() as stack:
        _, url = stack.enter_context(everything_over_http(folder=folder))
        _, sse_url = stack.enter_context(everything_over_sse(folder=folder))
        targets: dict[str, str | list[str]] = {
            "direct-stdio": [str(EVERYTHING)],
            "direct-http": url,
            "stdio-to-stdio": stdio_wrap(EVERYTHING),
            "transparent": stack.enter_context(wrap(url, folder=folder, options=["--no-inspect"])).url,
        }
        proxies = {
            "stdio": stack.enter_context(wrap(EVERYTHING, folder=folder)),
            "http": stack.enter_context(wrap(url, folder=folder)),
            "sse": stack.enter_context(wrap(f"sse+{sse_url}", folder=folder)),
        }
        socket_url = proxies["stdio"].socket_url  # there is no WebSocket server of ours, but a proxy before one
        proxies["socket"] = stack.enter_context(wrap(socket_url, folder=folder))
        for up, other in (("http", url), ("sse", f"sse+{sse_url}"), ("socket", socket_url)):
            targets[f"stdio-to-{up}"] = stdio_wrap(other)
        for up, proxy in proxies.items():
            targets[f"http-to-{up}"] = proxy.url
            targets[f"sse-to-{up}"] = proxy.sse_url
            targets[f"socket-to-{up}"] = proxy.socket_url
        pool = stack.enter_context(ThreadPoolExecutor(WORKERS))
        made = Recordings(pool)
        for client in CLIENTS:
            for way, target in targets.items():
                if not goes(client, way):
                    continue
                sessions = [
                    {"capabilities": "none", "steps": BARE_STEPS},
                    {"capabilities": "all", "steps": full_steps(f"run-{client}-{way}")},
                ]
                made.make(client, way, "usual", target, sessions, folder)
                if has_tasks(client, way):
                    sessions = [{"capabilities": "all", "tasks": True, "steps": TASK_STEPS}]
                    made.make(client, way, "tasks", target, sessions, folder)
        yield made


# --- Comparing --------------------------------------------------------------------------------------------------------

PATTERNS: Final = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\b[0-9a-f]{32}\b", "TASK"),
    (r"\b\d{1,2}:\d\d:\d\d [AP]M\b", "TIME"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "WHEN"),
    (r"run-[a-z0-9-]+\.gz", "RUN.gz"),
    (r"\[COMPLETED\](.*\n)*Poll \d+: completed", "POLLED"),
)
SIMULATED: Final = re.compile(r"-level message|Alert level-message")
LEVEL_TRIGGERED: Final = re.compile(r"list_changed$|resources/updated$")
"""Notifications whose repetition changes nothing. The proxy may send one for several that came while no stream was
open."""


def settled(value: Any) -> Any:
    """Returns the value without random parts and times."""
    if isinstance(value, dict):
        if SIMULATED.search(str(value.get("data"))):
            return {"data": "simulated", "level": "any"}
        return {name: settled(_unpacked(item) if name == "blob" else item) for name, item in value.items()}
    if isinstance(value, list):
        return [settled(item) for item in value]
    if isinstance(value, str):
        for pattern, name in PATTERNS:
            value = re.sub(pattern, name, value)
    return value


def _unpacked(blob: str) -> str:
    """Returns a text that was packed as a blob. Other blobs are returned unchanged."""
    try:
        return base64.b64decode(blob, validate=True).decode()
    except ValueError:
        return blob


def settled_outcome(step: Step, outcome: dict[str, Any]) -> dict[str, Any]:
    if step.get("name") == "get-env":
        env = json.loads(outcome["result"]["content"][0]["text"])
        return {"env": {name: env[name] for name in ("PATH", "HOME")}}
    settled_value = settled(outcome)
    assert isinstance(settled_value, dict)
    return settled_value


def counted(recording: Recording, *, is_http: bool) -> tuple[Counter[str], set[str]]:
    """Returns the number of each of the server's messages, and the set of those whose number does not matter."""
    once: set[str] = set()
    each: Counter[str] = Counter()
    for message in recording.messages:
        method = message["method"]
        if is_http and method == "notifications/tools/list_changed":
            continue  # sent during the handshake, when a stream may not be open yet
        text = json.dumps(settled(message), sort_keys=True)
        if LEVEL_TRIGGERED.search(method):
            once.add(text)
        # their number depends on the client's polling
        elif method != "notifications/tasks/status" and method != "tasks/get":
            each[text] += 1
    return each, once


def test_settled_keeps_what_matters() -> None:
    """The comparison ignores random parts only."""
    assert settled({"a": "at 1:02:03 PM"}) == settled({"a": "at 11:12:13 AM"})
    assert settled({"a": "x 1"}) != settled({"a": "x 2"})
    assert settled({"blob": base64.b64encode(b"at 1:02:03 PM").decode()}) == {"blob": "at TIME"}
    assert settled({"blob": "H4sIAAAA"}) != settled({"blob": "H4sIAAAB"})


# --- Direct = proxied -------------------------------------------------------------------------------------------------

PAIRS: Final = [(client, way) for way in BASELINE for client in CLIENTS if goes(client, way)]
each_pair = pytest.mark.parametrize("client, way", PAIRS)
each_task_pair = pytest.mark.parametrize("client, way", [pair for pair in PAIRS if has_tasks(*pair)])


def assert_same(direct: Recording, proxied: Recording, *, is_http: bool) -> None:
    assert settled(proxied.initialize) == settled(direct.initialize)
    for (step, seen), (same_step, expected) in zip(proxied.outcomes, direct.outcomes, strict=True):
        assert settled(step) == settled(same_step)
        assert "trouble" not in expected, (step, expected)
        assert settled_outcome(step, seen) == settled_outcome(step, expected), step
    assert counted(proxied, is_http=is_http) == counted(direct, is_http=is_http)


@each_pair
@pytest.mark.parametrize("kind", ["bare", "full"])
def test_the_proxy_changes_nothing(recordings: Recordings, client: str, way: str, kind: str) -> None:
    """Handshake, every outcome and every message of the server are the same as without the proxy."""
    direct = recordings.get(client, BASELINE[way], kind)
    assert_same(direct, recordings.get(client, way, kind), is_http=BASELINE[way] == "direct-http")


@each_task_pair
def test_the_proxy_changes_nothing_about_tasks(recordings: Recordings, client: str, way: str) -> None:
    direct = recordings.get(client, BASELINE[way], "tasks")
    assert_same(direct, recordings.get(client, way, "tasks"), is_http=BASELINE[way] == "direct-http")


# --- Content of the recordings ----------------------------------------------------------------------------------------


@each_pair
def test_the_handshake_is_the_servers(recordings: Recordings, client: str, way: str) -> None:
    """Name, instructions and capabilities are the server's, not the proxy's."""
    result = recordings.get(client, way, "full").initialize
    assert result["serverInfo"]["name"] == "mcp-servers/everything"
    assert result["serverInfo"]["title"] == "Everything Reference Server"
    assert result["protocolVersion"] == "2025-11-25"
    assert "Everything" in result["instructions"]
    assert result["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}


@each_pair
def test_client_capabilities_reach_the_server(recordings: Recordings, client: str, way: str) -> None:
    """The server offers more tools to a client that declares sampling, elicitation and roots."""
    bare = recordings.get(client, way, "bare").outcome(op="tools")["result"]
    full = recordings.get(client, way, "full").outcome(op="tools")["result"]
    assert {tool["name"] for tool in bare} == ALWAYS_TOOLS
    assert {tool["name"] for tool in full} == ALWAYS_TOOLS | ABILITY_TOOLS


@each_pair
def test_tools_answer(recordings: Recordings, client: str, way: str) -> None:
    """Results have text of every kind, numbers, structured content, images, links and embedded resources."""
    seen = recordings.get(client, way, "full")
    assert seen.text("echo") == f"Echo: {MESSAGE}"
    assert seen.text("get-sum") == "The sum of 0.1 and 2000000000 is 2000000000.1."
    weather = seen.outcome(name="get-structured-content")["result"]["structuredContent"]
    assert weather == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    image = seen.outcome(name="get-tiny-image")["result"]["content"][1]
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
    annotated = seen.outcome(name="get-annotated-message")["result"]["content"]
    assert [block["annotations"]["priority"] for block in annotated] == [1, 0.5]
    links = seen.outcome(name="get-resource-links")["result"]["content"][1:]
    assert [link["type"] for link in links] == ["resource_link"] * 4
    reference = seen.outcome(name="get-resource-reference")["result"]["content"][1]["resource"]
    assert base64.b64decode(reference["blob"]).startswith(b"Resource 7")
    packed = seen.outcome(op="read")["result"]["contents"][0]
    assert base64.b64decode(packed["blob"]).startswith(b"\x1f\x8b")


@each_pair
def test_progress_comes_in_order_before_the_result(recordings: Recordings, client: str, way: str) -> None:
    seen = recordings.get(client, way, "full")
    progress = [event for event in seen.events if event["kind"] == "progress"]
    assert [(event["progress"], event["total"]) for event in progress] == [(n, 5) for n in range(1, 6)]
    number = next(n for n, step in enumerate(seen.steps) if step.get("progress"))
    answered_at = next(at for at, event in enumerate(seen.events) if event.get("number") == number)
    assert max(seen.events.index(event) for event in progress) < answered_at


@each_pair
def test_a_cancelled_call_has_no_outcome(recordings: Recordings, client: str, way: str) -> None:
    """The session continues."""
    assert recordings.get(client, way, "full").outcome(op="cancel") == {"result": {"outcome": []}}


@each_pair
def test_the_server_asks_the_client(recordings: Recordings, client: str, way: str) -> None:
    """The server asks for sampling, elicitation by form and by URL, and roots. The client's answers reach the tool that
    asked."""
    seen = recordings.get(client, way, "full")
    assert len(seen.sent("sampling/createMessage")) == 1
    assert '"text": "canned"' in seen.text("trigger-sampling-request")
    form, url = seen.sent("elicitation/create")
    assert "requestedSchema" in form
    assert url["url"] == AUTH_URL
    assert "- Name: canned" in seen.text("trigger-elicitation-request")
    assert "completed the URL elicitation" in seen.text("trigger-url-elicitation")
    assert len(seen.sent("roots/list")) == 2  # after the handshake, and after they changed
    assert "file:///tmp/somewhere" in seen.text("get-roots-list")


@each_pair
def test_the_server_tells_the_client(recordings: Recordings, client: str, way: str) -> None:
    """The server sends log messages, updates of subscribed resources, and changes of lists."""
    seen = recordings.get(client, way, "full")
    assert len([params for params in seen.sent("notifications/message") if SIMULATED.search(params["data"])]) == 1
    assert {params["uri"] for params in seen.sent("notifications/resources/updated")} == {TEXT_URI}
    assert seen.sent("notifications/resources/list_changed")
    # over those no stream may be open when it is sent, see `counted`
    if not way.endswith("http") and way != "transparent":
        assert seen.sent("notifications/tools/list_changed")


@each_pair
def test_lists_prompts_and_completions(recordings: Recordings, client: str, way: str) -> None:
    seen = recordings.get(client, way, "full")
    resources = seen.outcome(op="resources")["result"]
    assert len({resource["uri"] for resource in resources}) == len(resources) == 7
    assert len(seen.outcome(op="templates")["result"]) == 2
    prompts = {prompt["name"] for prompt in seen.outcome(op="prompts")["result"]}
    assert prompts == {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}
    asked = seen.outcome(op="prompt", name="args-prompt")["result"]["messages"][0]["content"]["text"]
    assert asked == "What's weather in Oslo, Norway?"
    embedded = seen.outcome(op="prompt", name="resource-prompt")["result"]["messages"][1]["content"]["resource"]
    assert embedded["uri"] == "demo://resource/dynamic/text/3"
    values = [outcome["result"]["completion"]["values"] for step, outcome in seen.outcomes if step["op"] == "complete"]
    assert values == [["Sales", "Support"], ["David", "Eve", "Frank"], ["12"]]


@each_pair
def test_errors_are_the_servers(recordings: Recordings, client: str, way: str) -> None:
    """Codes, messages and data are the server's, for protocol errors and for tool errors."""
    seen = recordings.get(client, way, "full")
    authorization = seen.outcome(name="trigger-url-elicitation", nth=1)["error"]
    assert authorization["code"] == -32042
    assert authorization["data"]["elicitations"][0]["url"] == "https://modelcontextprotocol.io"
    assert seen.outcome(op="read", uri="demo://nothing")["error"]["code"] == -32602
    assert seen.outcome(op="prompt", name="nothing")["error"]["code"] == -32602
    assert seen.outcome(op="prompt", name="args-prompt", nth=1)["error"]["code"] == -32602
    assert seen.outcome(op="request")["error"]["code"] == -32601
    unknown = seen.outcome(name="nothing")["result"]
    assert unknown["isError"]
    assert "Tool nothing not found" in unknown["content"][0]["text"]
    assert seen.outcome(name="echo", nth=1)["result"]["isError"]


@each_task_pair
def test_tasks_run_both_ways(recordings: Recordings, client: str, way: str) -> None:
    """A tool runs as a task and asks questions in the middle. The client answers them as tasks."""
    seen = recordings.get(client, way, "tasks")
    assert {tool["name"] for tool in seen.outcome(op="tools")["result"]} == ALWAYS_TOOLS | ABILITY_TOOLS | TASK_TOOLS
    task = seen.outcome(op="task")["result"]
    assert task["created"] == "working"
    assert task["final"] == "completed"
    assert task["neededInput"]
    assert task["isListed"]
    assert '"programming"' in task["result"]["content"][0]["text"]
    assert {"working", "input_required", "completed"} <= {
        params["status"] for params in seen.sent("notifications/tasks/status")
    }
    assert seen.text("trigger-sampling-request-async").startswith("[COMPLETED]")
    assert seen.text("trigger-elicitation-request-async").startswith("[COMPLETED]")
