"""Tests of name filters: a hidden name does not exist for clients, in lists, calls and notifications, on every path.

Source: 2025-11-25 server/tools, server/prompts, server/resources and server/utilities/completion, "Error Handling".
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from driving import Client, Driver, connect, driver, new_client, notification, request, result
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.events import EventPipeOpening, MessageOpening, PipeOpening
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import ArtifactProducer, Kind, ServerPlan, UploadConsumer

TOOLS = NameFilter(("get_*", "put"), ("get_secret",))
PROMPTS = NameFilter(("ask", "tell"))
RESOURCES = NameFilter(("file:///pub/*", "db://{table}", "file:///pub/../odd"), ("*.key",))
KINDS = {"pipe": Kind.PIPE, "http": Kind.HTTP, "socket": Kind.SOCKET}
PATHS = [(down, up) for down in ("pipe", "http", "event pipe") for up in KINDS]


def filtered(up: str = "pipe", **more: Any) -> ServerPlan:
    return ServerPlan(id=up, kind=KINDS[up], tools=TOOLS, prompts=PROMPTS, resources=RESOURCES, **more)


class EventPipe(Client):
    """A client of HTTP+SSE: its messages go as POSTs, and it receives on `pipe`."""

    def send(self, message: bytes, *, takes_events: bool = True) -> ChannelId:
        assert self.pipe is not None and self.session is not None
        channel = self.driver.engine.new_channel()
        self.driver.open(channel, MessageOpening(self.server, self.session))
        self.driver.send(channel, message)
        return self.pipe


def ready(down: str, up: str, plan: ServerPlan | None = None) -> tuple[Driver, Client]:
    world = driver(plan or filtered(up))
    if down != "event pipe":
        return world, connect(world, down, up, capabilities='{"tools":{},"resources":{},"prompts":{}}')
    pipe = world.engine.new_channel()
    world.open(pipe, EventPipeOpening(up, endpoint="/m"))
    client = EventPipe(world, up, pipe, world.messages(pipe)[0].decode().partition("=")[2])
    client.initialize()
    world.start_server()
    client.notify("notifications/initialized")
    world.sent[pipe].clear()
    return world, client


def refusal(world: Driver, client: Client, method: str, params: str) -> dict[str, Any] | None:
    """The error that a request is answered with at once; None if it went up."""
    channel = client.request("7", method, params)
    if world.was_sent(method):
        world.take_sent(method)
        return None
    assert not world.unread, "nothing of it reaches the server"
    answer = json.loads(world.messages(channel)[-1])
    assert answer["id"] == 7
    failure = answer["error"]
    assert isinstance(failure, dict)
    return failure


# --- Lists ------------------------------------------------------------------------------------------------------------

LISTS = {
    "tools/list": (
        '{"tools": [ {"name":"get_a", "x":1.0} ,{"name":"drop"},{"name":"get_secret"},\n{"n":1,"name":"p\\u0075t"}],'
        '"nextCursor":"c"}',
        '{"tools": [{"name":"get_a", "x":1.0},{"n":1,"name":"p\\u0075t"}],"nextCursor":"c"}',
    ),
    "prompts/list": ('{"prompts":[{"name":"other"},{"name":"ask"}]}', '{"prompts":[{"name":"ask"}]}'),
    "resources/list": (
        '{"resources":[{"uri":"file:///pub/a"},{"uri":"file:///pub/a.key"},{"uri":"file:///etc/b"}],"_meta":{}}',
        '{"resources":[{"uri":"file:///pub/a"}],"_meta":{}}',
    ),
    "resources/templates/list": (
        '{"resourceTemplates":[{"uriTemplate":"db://{table}"},{"uriTemplate":"db://{table}/{row}"}]}',
        '{"resourceTemplates":[{"uriTemplate":"db://{table}"}]}',
    ),
}


@pytest.mark.parametrize(("down", "up"), PATHS)
@pytest.mark.parametrize("method", LISTS)
def test_lists_have_the_admitted_entries_in_order_and_byte_for_byte(method: str, down: str, up: str) -> None:
    world, client = ready(down, up)
    channel = client.request("1", method)
    given_, seen = LISTS[method]
    world.answer(world.take_sent(method), given_)
    assert world.messages(channel) == [result("1", seen)]


def listed(method: str, text: str) -> bytes:
    """The response of a list request that the server answers with `text`."""
    world, client = ready("http", "pipe")
    channel = client.request("1", method)
    world.answer(world.take_sent(method), text)
    (answer,) = world.messages(channel)
    return answer


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("text", ["{}", '{"tools":[],"prompts":[],"resources":[],"resourceTemplates":[]}'])
def test_a_list_without_entries_is_left_alone(method: str, text: str) -> None:
    assert listed(method, text) == result("1", text)


@pytest.mark.parametrize(
    "entry",
    [
        "{}",
        "null",
        '"get_a"',
        '{"name":5}',
        '{"name":null}',
        '{"name":"get_\\ud800"}',
        '{"name":"get_a","name":"get_a"}',
        '{"name":"get_a","Name":"drop"}',
        '{"name":"get_a","\\u004eAME":"drop"}',
        '{"title":"get_a"}',
    ],
)
def test_an_entry_whose_name_cannot_be_read_is_hidden(entry: str) -> None:
    assert listed("tools/list", f'{{"tools":[{entry},{{"name":"get_b"}}]}}') == result(
        "1", '{"tools":[{"name":"get_b"}]}'
    )


def test_a_list_of_which_nothing_is_hidden_is_left_alone() -> None:
    text = '{ "tools" :[ {"name":"get_a"} , {"name":"put"}\n] }'
    assert listed("tools/list", text) == result("1", text)


def test_a_template_with_two_texts_is_hidden() -> None:
    entry = '{"uriTemplate":"db://{table}","uritemplate":"file:///etc/{name}"}'
    assert listed("resources/templates/list", f'{{"resourceTemplates":[{entry}]}}') == result(
        "1", '{"resourceTemplates":[]}'
    )


@pytest.mark.parametrize("text", ['{"tools":{"name":"drop"}}', '{"tools":"drop"}', '{"tools":null}'])
def test_a_list_that_is_no_array_is_empty(text: str) -> None:
    assert listed("tools/list", text) == result("1", '{"tools":[]}')


@pytest.mark.parametrize("text", ['{"tools":[],"tools":[{"name":"drop"}]}', '[{"name":"drop"}]', '"drop"'])
def test_a_list_that_two_readers_read_differently_is_not_passed(text: str) -> None:
    answer = listed("tools/list", text)
    assert json.loads(answer)["error"]["code"] == -32603
    assert b"drop" not in answer


ENTRIES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["get_a", "get_b", "get_secret", "put", "drop", "a.get_a", ""])})
)


@given(tools=ENTRIES, include=st.lists(st.sampled_from(["get_*", "put", "*"])), exclude=st.lists(st.just("get_secret")))
def test_a_filtered_list_is_the_list_filtered(
    tools: list[dict[str, str]], include: list[str], exclude: list[str]
) -> None:
    """The client gets the entries that the filter admits, all of them and in their order."""
    selection = NameFilter(tuple(include), tuple(exclude))
    world = driver(ServerPlan(id="pipe", kind=Kind.PIPE, tools=selection))
    client = connect(world, "pipe", "pipe")
    channel = client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), json.dumps({"tools": tools}))
    seen = json.loads(world.messages(channel)[-1])["result"]["tools"]
    assert seen == [tool for tool in tools if selection.admits(tool["name"])]


# --- Uses -------------------------------------------------------------------------------------------------------------

USES = [  # method, params, code and message of the refusal; None: it passes
    ("tools/call", '{"name":"get_a","arguments":{}}', None, ""),
    ("tools/call", '{"name":"p\\u0075t"}', None, ""),
    ("tools/call", '{"name":"drop"}', -32602, "Unknown tool: drop"),
    ("tools/call", '{"name":"get_secret"}', -32602, "Unknown tool: get_secret"),
    ("tools/call", '{"n":0,"name":"dr\\u006fp"}', -32602, "Unknown tool: drop"),
    ("tools/call", '{"name":"get_a","name":"drop"}', -32602, "expected exactly one"),
    ("tools/call", '{"name":"get_a","Name":"drop"}', -32602, "expected exactly one"),
    ("tools/call", '{"name":"get_a","NAM\\u0045":"drop"}', -32602, "expected exactly one"),
    ("tools/call", '{"name":["get_a"]}', -32602, "expected exactly one"),
    ("tools/call", '["get_a"]', -32602, "expected exactly one"),
    ("tools/call", "{}", -32602, "expected exactly one"),
    ("prompts/get", '{"name":"ask"}', None, ""),
    ("prompts/get", '{"name":"x"}', -32602, "Unknown prompt: x"),
    ("resources/read", '{"uri":"file:///pub/x"}', None, ""),
    ("resources/read", '{"uri":"file:///pub/x.key"}', -32002, "Resource not found: file:///pub/x.key"),
    ("resources/read", '{"uri":"file:///pub/../etc"}', -32002, "Resource not found: file:///pub/../etc"),
    ("resources/read", '{"uri":"file:///pub/%2e%2E/etc"}', -32002, "Resource not found: "),
    ("resources/read", '{"uri":"file:///pub/..%2Fetc"}', -32002, "Resource not found: "),
    ("resources/read", '{"uri":"file:///pub/a..b"}', None, ""),
    ("resources/read", '{"uri":"file:///pub/../odd"}', None, ""),
    ("resources/subscribe", '{"uri":"file:///pub/x"}', None, ""),
    ("resources/subscribe", '{"uri":"db://t"}', -32002, "Resource not found: db://t"),
    ("resources/unsubscribe", '{"uri":"db://t"}', -32002, "Resource not found: db://t"),
    ("completion/complete", '{"ref":{"type":"ref/prompt","name":"ask"}}', None, ""),
    ("completion/complete", '{"ref":{"type":"ref/prompt","name":"x"}}', -32602, "Unknown prompt: x"),
    ("completion/complete", '{"ref":{"type":"ref/resource","uri":"db://{table}"}}', None, ""),
    ("completion/complete", '{"ref":{"type":"ref/resource","uri":"db://x"}}', -32602, "Unknown resource: db://x"),
    ("completion/complete", '{"ref":{"type":"ref/other","name":"ask"}}', -32602, "a ref that cannot be read"),
    ("completion/complete", '{"ref":{"type":"ref/other","":"ask"}}', -32602, "a ref that cannot be read"),
    ("completion/complete", '{"ref":{"":"ask"}}', -32602, "a ref that cannot be read"),
    ("completion/complete", '{"ref":{"type":"ref/prompt","name":"ask","Type":1}}', -32602, "a ref that cannot be"),
    ("completion/complete", '{"ref":[]}', -32602, "a ref that cannot be read"),
    ("completion/complete", "{}", -32602, "a ref that cannot be read"),
    ("vendor/call", '{"name":"drop"}', None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("method", "params", "code", "message"), USES)
def test_hidden_names_cannot_be_used(method: str, params: str, code: int | None, message: str) -> None:
    for down, up in PATHS:
        world, client = ready(down, up)
        failure = refusal(world, client, method, params)
        assert (failure and failure["code"]) == code
        assert failure is None or message in failure["message"]


@pytest.mark.parametrize(("method", "params"), [(method, params) for method, params, *_ in USES])
def test_without_a_filter_everything_passes(method: str, params: str) -> None:
    world = driver()
    assert refusal(world, connect(world, "http", "pipe"), method, params) is None


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_a_filter_is_about_its_own_kind(kind: str) -> None:
    plan = ServerPlan(id="pipe", kind=Kind.PIPE, **{kind: NameFilter(("nothing",))})  # type: ignore[arg-type]
    world, client = ready("http", "pipe", plan)
    passed = {method for method, params, *_ in USES if refusal(world, client, method, params) is None}
    assert {"tools/call", "prompts/get", "resources/read", "resources/subscribe"} - passed == {
        "tools": {"tools/call"},
        "prompts": {"prompts/get"},
        "resources": {"resources/read", "resources/subscribe"},
    }[kind]


FILTERS = {"tools": TOOLS, "prompts": PROMPTS, "resources": RESOURCES}


def kinds_of(method: str, params: str) -> set[str]:
    """The filters that a request may be refused by: one whose reference cannot be read, by either that has any."""
    if method != "completion/complete":
        return {"tools/call": {"tools"}, "prompts/get": {"prompts"}, "vendor/call": set()}.get(method, {"resources"})
    of = {"ref/prompt": {"prompts"}, "ref/resource": {"resources"}}
    return next(
        (kind for type, kind in of.items() if type in params and "Type" not in params), {"prompts", "resources"}
    )


@pytest.mark.parametrize("kind", FILTERS)
def test_a_request_is_refused_by_the_filter_of_what_it_names_and_by_no_other(kind: str) -> None:
    """A single filter refuses the requests of its kind as all three do, and no others."""
    plan = ServerPlan(id="pipe", kind=Kind.PIPE, **{kind: FILTERS[kind]})  # type: ignore[arg-type]
    world, client = ready("http", "pipe", plan)
    for method, params, code, _ in USES:
        failure = refusal(world, client, method, params)
        assert (failure and failure["code"]) == (code if kind in kinds_of(method, params) else None), (method, params)


def test_the_exact_errors_of_refusals() -> None:
    """The exact errors: that of a resource has its URI as data as well."""
    world, client = ready("http", "pipe")
    assert refusal(world, client, "resources/read", '{"uri":"db://t"}') == {
        "code": -32002,
        "message": "Resource not found: db://t",
        "data": {"uri": "db://t"},
    }
    for method, key in (("tools/call", "name"), ("prompts/get", "name"), ("resources/subscribe", "uri")):
        assert refusal(world, client, method, "{}") == {
            "code": -32602,
            "message": f"got {method} without a {key} that can be read, expected exactly one",
        }


def test_a_refused_call_does_not_start_a_server() -> None:
    world, client = ready("http", "pipe")
    world.end(world.dials[0].channel)
    before = len(world.dials)
    assert refusal(world, client, "tools/call", '{"name":"drop"}') is not None
    assert len(world.dials) == before


def test_in_a_batch_only_hidden_names_are_refused() -> None:
    world = driver(filtered())
    client = connect(world, "http", "pipe", revision="2025-03-26")
    calls = [request(str(n), "tools/call", f'{{"name":"{name}"}}') for n, name in enumerate(("drop", "get_a"))]
    channel = client.send(b"[" + b",".join(calls) + b"]")
    world.answer(world.take_sent("tools/call"), '{"content":[]}')
    assert not world.unread
    first, second = json.loads(world.messages(channel)[-1])
    assert (first["id"], first["error"]["message"]) == (0, "Unknown tool: drop")
    assert (second["id"], second["result"]) == (1, {"content": []})


@pytest.mark.parametrize(
    ("params", "is_sent"),
    [
        ('{"uri":"file:///pub/x"}', True),
        ('{"uri":"file:///etc/x"}', False),
        ('{"uri":"file:///pub/../etc/x"}', False),
        ('{"uri":"file:///pub/x","URI":"db://t"}', False),
        ("{}", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("up", KINDS)
def test_updates_of_hidden_resources_are_not_sent(params: str | None, is_sent: bool, up: str) -> None:
    world = driver(filtered(up))
    client = new_client(world, "pipe", up)
    client.initialize()
    stream = world.start_server(listens=True) or world.dials[0].channel
    client.notify("notifications/initialized")
    assert client.pipe is not None
    world.sent[client.pipe].clear()
    update = notification("notifications/resources/updated", params)
    again = notification("notifications/resources/list_changed")
    world.send(stream, update)
    world.send(stream, again)
    assert world.messages(client.pipe) == ([update, again] if is_sent else [again])


def test_links_in_results_pass() -> None:
    """The result of an admitted tool is not filtered."""
    world, client = ready("http", "pipe")
    channel = client.request("1", "tools/call", '{"name":"get_a"}')
    text = (
        '{"content":[{"type":"resource_link","uri":"file:///etc/x"},{"type":"resource","resource":{"uri":"db://t"}}]}'
    )
    world.answer(world.take_sent("tools/call"), text)
    assert world.messages(channel) == [result("1", text)]


def test_a_session_that_sees_hidden_names_is_not_filtered() -> None:
    world = driver(filtered())
    pipe = world.engine.new_channel()
    world.open(pipe, PipeOpening("pipe", sees_hidden=True))
    client = Client(world, "pipe", pipe)
    client.initialize()
    world.start_server()
    client.notify("notifications/initialized")
    world.sent[pipe].clear()
    for method, (text, _) in LISTS.items():
        client.request("1", method)
        world.answer(world.take_sent(method), text)
        assert world.messages(pipe).pop() == result("1", text)
    assert refusal(world, client, "tools/call", '{"name":"drop"}') is None


# --- With files -------------------------------------------------------------------------------------------------------

FILES = filtered(
    consumers=(UploadConsumer(tools=("put",), file_path_argument="path"),),
    producers=(ArtifactProducer(tools=("get_a",), output_path_argument="to"),),
)


def test_the_proxys_own_entries_are_not_hidden() -> None:
    """The helper tool, the guide and the artifacts are added after the server's entries are filtered."""
    world, client = ready("http", "pipe", FILES)
    channel = client.request("1", "tools/list")
    world.answer(world.take_sent("tools/list"), '{"tools":[{"name":"drop"},{"name":"get_b"},{"name":"put"}]}')
    tools = json.loads(world.messages(channel)[0])["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["pipe_get_upload_url", "pipe_put_file", "get_b", "put"]
    helped = client.request("2", "tools/call", '{"name":"pipe_get_upload_url"}')
    assert "upload_url" in world.only_message(helped)["result"]["structuredContent"]
    channel = client.request("3", "resources/list")
    world.answer(world.take_sent("resources/list"), '{"resources":[{"uri":"db://t"},{"uri":"file:///pub/a"}]}')
    listed = json.loads(world.messages(channel)[0])["result"]["resources"]
    assert [one["uri"] for one in listed] == ["file:///pub/a", "doc://upload_workflow.md"]
    read = client.request("4", "resources/read", '{"uri":"doc://upload_workflow.md"}')
    assert "contents" in world.only_message(read)["result"]
    missing = client.request("5", "resources/read", '{"uri":"artifact://sessions/x/y/z"}')
    assert world.only_message(missing)["error"]["code"] == -32002
    assert not world.unread


def test_a_tool_that_has_the_helpers_name_is_not_reached_when_uploads_are_off() -> None:
    world = driver(FILES, uploads_enabled=False)
    client = connect(world, "http", "pipe", capabilities='{"tools":{}}')
    failure = refusal(world, client, "tools/call", '{"name":"pipe_get_upload_url"}')
    assert failure is not None and failure["message"] == "Unknown tool: pipe_get_upload_url"


def test_a_hidden_tool_is_not_reached_by_way_of_an_adapter() -> None:
    """The configuration refuses an adapter of a hidden tool; the engine does not rely on that."""
    consumer = UploadConsumer(tools=("drop",), file_path_argument="path")
    world, client = ready("http", "pipe", filtered(consumers=(consumer,)))
    failure = refusal(world, client, "tools/call", '{"name":"drop","arguments":{}}')
    assert failure is not None and failure["message"] == "Unknown tool: drop"


def test_plans_without_filters_are_recorded_as_before() -> None:
    assert msgspec.to_builtins(ServerPlan(id="a", kind=Kind.PIPE))["tools"] == {}
