"""Tests of names and URIs in messages. The corner cases are tests of their own; all places are in
test_rewriting_schema."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.methods import LISTEN
from isthmus.core.jsonrpc.outline import outlined
from isthmus.core.profiles.rewriting import (
    CANDIDATES_MAX,
    CHAIN,
    NAMING,
    SERVER,
    Addressed,
    Rewriter,
    Snapshot,
)
from isthmus.core.wire.http.mcp_headers import check, decode_value, headers_for
from profile_worlds import World, raw_names, raw_uris, world, worlds

TWO = world({"a": None, "b": None})
REWRITER = Rewriter(TWO.names, TWO.uris)
LONG = "x" * 65
SNAPSHOTS = {
    "a": Snapshot(TWO.names.catalogue("a", "tools", [LONG, "read"]), {}, {"file:///x", "memo:x"}),
    "b": Snapshot(TWO.names.catalogue("b", "tools", ["read"]), {}, {"memo:x"}),
}


def result(method: str, value: object, server: str = "a") -> Any:
    return json.loads(REWRITER.result(server, method, json.dumps(value).encode()))


def addressed(method: str, params: object) -> Addressed | None:
    return REWRITER.address(method, json.dumps(params).encode(), SNAPSHOTS)


def refused(method: str, params: object) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        addressed(method, params)
    assert caught.value.rpc_code == INVALID_PARAMS
    return caught.value


# --- Lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "array", "before", "after"),
    [
        ("tools/list", "tools", {"name": "read"}, {"name": "a__read"}),
        ("prompts/list", "prompts", {"name": "read"}, {"name": "a__read"}),
        ("resources/list", "resources", {"uri": "memo:x", "name": "x"}, {"uri": "a+memo:x", "name": "x"}),
        ("resources/templates/list", "resourceTemplates", {"uriTemplate": "{+u}"}, {"uriTemplate": "a+{+u}"}),
    ],
)
def test_each_entry_of_a_list_says_whose_it_is(
    method: str, array: str, before: dict[str, str], after: dict[str, str]
) -> None:
    assert result(method, {array: [before], "nextCursor": "c"}) == {
        array: [{**after, "_meta": {SERVER: "a"}}],
        "nextCursor": "c",
    }


def test_entries_keep_their_bytes() -> None:
    listed = (
        rb'{ "ttlMs" : 1.0, "tools" : [ {"name":"\u0072ead" , "inputSchema": {"x":1e2},"_meta":{"k":"\/"}} , {} ] }'
    )
    assert REWRITER.result("a", "tools/list", listed.replace(b" , {} ]", b" ]")) == (
        rb'{ "ttlMs" : 1.0, "tools" : [ {"name":"a__read" , "inputSchema": {"x":1e2},'
        rb'"_meta":{"k":"\/","dev.isthmus/server":"a"}} ] }'
    )
    assert json.loads(REWRITER.result("a", "tools/list", listed))["ttlMs"] == 1


@pytest.mark.parametrize("meta", ["null", "{}", '{"dev.isthmus/server":"b"}', '{"dev.isthmus\\/server":"b"}'])
def test_an_entry_cannot_say_that_it_is_of_another_server(meta: str) -> None:
    listed = b'{"tools":[{"name":"read","_meta":%b}]}' % meta.encode()
    (entry,) = json.loads(REWRITER.result("a", "tools/list", listed))["tools"]
    passed = {CHAIN: 1} if "server" in meta else {}
    assert entry == {"name": "a__read", "_meta": {SERVER: "a"} | passed}


@pytest.mark.parametrize(
    "entry",
    [
        '{"name":"x","_meta":[]}',
        '{"name":"x","_meta":{"dev.isthmus/server":"b","k":1,"k":2}}',
        '{"name":"x","_meta":{},"_Meta":{"dev.isthmus/server":"b"}}',
        '{"name":"x","_Meta":{"dev.isthmus/server":"b"}}',
        "{}",
        '{"name":7}',
        '{"name":"x","name":"y"}',
        '{"name":"x","Name":"y"}',
        '{"name":"\\ud800"}',
        "7",
        "[]",
    ],
)
def test_an_entry_whose_name_or_server_cannot_be_read_is_left_out(entry: str) -> None:
    listed = '{"tools":[{"name":"v"}, ENTRY ,{"name":"w"}]}'.replace("ENTRY", entry).encode()
    assert [tool["name"] for tool in json.loads(REWRITER.result("a", "tools/list", listed))["tools"]] == [
        "a__v",
        "a__w",
    ]


def test_a7_of_two_entries_with_one_name_the_first_is_listed() -> None:
    listed = {"tools": [{"name": "x", "title": "1"}, {"name": "y"}, {"name": "x", "title": "2"}]}
    assert [(tool["name"], tool.get("title")) for tool in result("tools/list", listed)["tools"]] == [
        ("a__x", "1"),
        ("a__y", None),
    ]


@pytest.mark.parametrize("listed", [b"7", b'{"tools":[],"tools":[]}', b'{"tools":[}', b""])
def test_a_list_that_cannot_be_read_is_an_error(listed: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        REWRITER.result("a", "tools/list", listed)


@pytest.mark.parametrize("listed", [b"{}", b'{"tools":null}', b'{"tools":{}}'])
def test_a_result_that_is_no_list_stays(listed: bytes) -> None:
    assert REWRITER.result("a", "tools/list", listed) is listed


# --- What is in results and messages --------------------------------------------------------------------------------


def test_u2_one_uri_of_two_servers_stays_apart() -> None:
    read = {"contents": [{"uri": "memo:x", "text": "memo:x"}]}
    assert result("resources/read", read, "a") == {"contents": [{"uri": "a+memo:x", "text": "memo:x"}]}
    assert result("resources/read", read, "b") == {"contents": [{"uri": "b+memo:x", "text": "memo:x"}]}
    assert addressed("resources/read", {"uri": "b+memo:x"}) == Addressed("b", "memo:x", b'{"uri": "memo:x"}')


def test_u4_both_forms_of_the_uri_of_a_user_interface() -> None:
    tool = {"name": "t", "_meta": {"ui": {"resourceUri": "ui://v", "csp": {}}, "ui/resourceUri": "ui://v"}}
    (after,) = result("tools/list", {"tools": [tool]})["tools"]
    assert after["_meta"] == {
        "ui": {"resourceUri": "ui://a+v", "csp": {}},
        "ui/resourceUri": "ui://a+v",
        SERVER: "a",
    }
    for meta in ({"ui": 7}, {"ui": {"resourceUri": 7}}, {"resourceUri": "ui://v"}):
        (after,) = result("tools/list", {"tools": [{"name": "t", "_meta": meta}]})["tools"]
        assert after["_meta"] == {**meta, SERVER: "a"}


LINK = {"type": "resource_link", "uri": "file:///x", "name": "file:///x"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///x", "text": "file:///x"}}
AFTER_LINK = {**LINK, "uri": "a+file:///x"}
AFTER_EMBEDDED = {"type": "resource", "resource": {"uri": "a+file:///x", "text": "file:///x"}}


@pytest.mark.parametrize("method", ["tools/call", "tasks/result"])
def test_u5_links_and_embedded_resources_but_nothing_else(method: str) -> None:
    kept = {
        "structuredContent": {"uri": "file:///x", "content": [LINK]},
        "_meta": {"uri": "file:///x", "content": [LINK]},
    }
    other = [
        {"type": "text", "text": json.dumps(LINK), "uri": "file:///x"},
        {"type": "new", "uri": "file:///x"},
        LINK["uri"],
    ]
    before = {"content": [LINK, *other, EMBEDDED], **kept}
    assert result(method, before) == {"content": [AFTER_LINK, *other, AFTER_EMBEDDED], **kept}


def test_u5_in_messages_of_prompts_and_of_sampling() -> None:
    assert result("prompts/get", {"messages": [{"role": "user", "content": LINK}, {"content": EMBEDDED}]}) == {
        "messages": [{"role": "user", "content": AFTER_LINK}, {"content": AFTER_EMBEDDED}]
    }
    used = {"type": "tool_result", "toolUseId": "1", "content": [LINK, EMBEDDED]}
    after = {**used, "content": [AFTER_LINK, AFTER_EMBEDDED]}
    for content, expected in ((used, after), ([used, used], [after, after]), (LINK, LINK)):
        asked = {"messages": [{"content": content}], "tools": [{"name": "read"}]}
        answered = {**asked, "messages": [{"content": expected}]}
        params = REWRITER.message("a", "sampling/createMessage", json.dumps(asked).encode())
        assert json.loads(params) == answered
        question = {"method": "sampling/createMessage", "params": asked}
        roots = {"method": "roots/list", "params": {"messages": [{"content": used}]}}
        assert result("tools/call", {"inputRequests": {"q": question, "r": roots}}) == {
            "inputRequests": {"q": {**question, "params": answered}, "r": roots}
        }


def test_u5_a_result_of_a_tool_is_looked_into_only_where_it_may_stand() -> None:
    """A block of that type is passed over in the result of a call, and in one of its own type."""
    block: dict[str, Any] = LINK
    for _ in range(90):
        block = {"type": "tool_result", "content": [block]}
    assert result("tools/call", {"content": [block]}) == {"content": [block]}
    asked = {"messages": [{"content": block}]}
    assert json.loads(REWRITER.message("a", "sampling/createMessage", json.dumps(asked).encode())) == asked


def test_u6_what_is_read_may_have_another_uri_than_was_asked_for() -> None:
    read = {"contents": [{"uri": "file:///d/1", "text": ""}, {"uri": "x.md", "blob": ""}]}
    assert [each["uri"] for each in result("resources/read", read)["contents"]] == ["a+file:///d/1", "a+rel:x.md"]


def test_u7_an_update_of_what_lies_below() -> None:
    params = REWRITER.message("a", "notifications/resources/updated", b'{"uri": "file:///d/1"}')
    assert params == b'{"uri": "a+file:///d/1"}'


def test_u8_the_profiles_own_files_pass_both_ways() -> None:
    before = {"content": [{"type": "resource_link", "uri": "artifact://sessions/1/2/x"}]}
    assert result("tools/call", before) == before
    for method in ("resources/read", "resources/subscribe"):
        assert addressed(method, {"uri": "artifact://sessions/1/2/x"}) is None
    assert addressed("completion/complete", {"ref": {"type": "ref/resource", "uri": "upload://sessions/1/2"}}) is None


def test_an_acknowledgment_has_the_uris_that_clients_know() -> None:
    params = b'{"notifications":{"resourceSubscriptions":["memo:x","y"],"toolsListChanged":true}}'
    assert REWRITER.message("a", "notifications/subscriptions/acknowledged", params) == (
        b'{"notifications":{"resourceSubscriptions":["a+memo:x","a+rel:y"],"toolsListChanged":true}}'
    )


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("tools/call", b'{"content":[{"type":"text","text":"the security of uri and url"}]}'),
        ("completion/complete", b'{"completion":{"values":["file:///x"]},"uri":"x"}'),
        ("roots/list", b'{"roots":[{"uri":"file:///x"}]}'),
        ("initialize", b'{"serverInfo":{"websiteUrl":"https://x"},"uri":"x"}'),
        ("tools/call", b'{"content":"uri"'),
        ("tools/call", b'{"content":[{"type":"resource_link","uri":"x"'),
        ("tools/call", b'{"content":[{"type":"resource_link","uri":"x","uri":"y"}]}'),
        ("tools/call", b'{"content":[{"type":"resource_link","uri":"\\ud800"}]}'),
        ("tools/call", b'{"content":[{"type":"resource_link","uri":7},{"type":7,"uri":"x"},{"uri":"x"}]}'),
        ("tools/call", b'{"content":[],"content":[{"type":"resource_link","uri":"x"}]}'),
        ("prompts/get", b'{"messages":{"content":"uri"},"uri":"x"}'),
        ("resources/read", b'["uri"]'),
        ("unknown/method", b'{"uri":"x"}'),
    ],
)
def test_what_holds_nothing_or_cannot_be_read_is_the_very_same(method: str, data: bytes) -> None:
    assert REWRITER.result("a", method, data) is data
    assert REWRITER.message("a", method, data) is data


def test_a_uri_without_a_scheme_has_its_form_wherever_it_stands() -> None:
    (listed,) = result("resources/list", {"resources": [{"uri": "x y"}]})["resources"]
    assert listed["uri"] == "a+rel:x%20y"
    assert REWRITER.message("a", "notifications/resources/updated", b'{"uri":"x y"}') == b'{"uri":"a+rel:x%20y"}'


def test_an_array_of_too_many_elements_is_the_very_same() -> None:
    data = b'{"content":[%b0],"uri":""}' % (b"0," * 40_000)
    assert REWRITER.result("a", "tools/call", data) is data


def test_a_member_whose_name_is_escaped_is_found() -> None:
    data = rb'{"content":[{"type":"resource_link","\u0075ri":"x:y"}]}'
    assert REWRITER.result("a", "tools/call", data) == rb'{"content":[{"type":"resource_link","\u0075ri":"a+x:y"}]}'


def test_a_large_result_is_rewritten_as_any() -> None:
    before = {"content": [LINK, {"type": "text", "text": "x" * 100_000}]}
    after = REWRITER.result("a", "tools/call", outlined(json.dumps(before).encode()))
    assert json.loads(after) == {"content": [AFTER_LINK, before["content"][1]]}


# --- Requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/call", {"name": "a__read", "arguments": {"name": "a__read"}}, ("a", "read")),
        ("tools/call", {"name": TWO.names.expose("a", "tools", LONG)}, ("a", LONG)),
        ("prompts/get", {"name": "b__read"}, ("b", "read")),
        ("resources/read", {"uri": "a+rel:x%20y"}, ("a", "x y")),
        ("resources/subscribe", {"uri": "ui://b+v"}, ("b", "ui://v")),
        ("resources/unsubscribe", {"uri": "b+file:///x"}, ("b", "file:///x")),
    ],
)
def test_a_request_is_for_the_server_that_it_names(
    method: str, params: dict[str, Any], expected: tuple[str, str]
) -> None:
    server, raw = expected
    found = addressed(method, params)
    assert found is not None
    assert (found.server, found.raw) == (server, raw)
    key = next(iter(params))
    assert json.loads(found.params) == {**params, key: raw}


@pytest.mark.parametrize(
    ("ref", "server", "raw"),
    [
        ({"type": "ref/prompt", "name": "a__x"}, "a", {"type": "ref/prompt", "name": "x"}),
        ({"type": "ref/resource", "uri": "b+{+url}"}, "b", {"type": "ref/resource", "uri": "{+url}"}),
        ({"uri": "b+file:///{p}", "type": "ref/resource"}, "b", {"uri": "file:///{p}", "type": "ref/resource"}),
    ],
)
def test_u3_a_completion_is_for_the_server_of_its_ref(ref: dict[str, str], server: str, raw: dict[str, str]) -> None:
    argument = {"name": "a__x", "value": "b+file:///"}
    found = addressed("completion/complete", {"ref": ref, "argument": argument})
    assert found is not None
    assert found.server == server
    assert json.loads(found.params) == {"ref": raw, "argument": argument}


@pytest.mark.parametrize("method", ["tools/list", "ping", "tasks/get", "logging/setLevel", LISTEN])
def test_a_request_that_names_nothing_is_for_no_server(method: str) -> None:
    assert addressed(method, {"name": "a__x", "uri": "a+x", "taskId": "a__1"}) is None
    assert REWRITER.address(method, None, SNAPSHOTS) is None


@each_row("method", sorted(NAMING))
@each_row(
    "params", [None, b"[]", b"{}", b'{"name":7,"uri":7}', b'{"name":"a__x","Name":"b__x","uri":"a+x:","URI":"b+x:"}']
)
def test_a_request_whose_name_cannot_be_read_is_refused(method: str, params: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        REWRITER.address(method, params, SNAPSHOTS)
    assert caught.value.rpc_code == INVALID_PARAMS


def test_a8_the_error_for_a_raw_name_has_the_servers_that_list_it() -> None:
    error = refused("tools/call", {"name": "read"})
    assert error.message == "Unknown tool: read; expected one of a__read, b__read"
    assert error.data == {"candidates": ["a__read", "b__read"]}
    assert refused("tools/call", {"name": LONG}).data == {"candidates": [TWO.names.expose("a", "tools", LONG)]}
    assert refused("tools/call", {"name": "other"}).message == "Unknown tool: other; expected a name from the list"
    assert refused("prompts/get", {"name": "read"}).data == {"candidates": []}


def test_a8_a_name_with_a_digest_that_no_list_has_is_unknown() -> None:
    name = TWO.names.expose("b", "tools", LONG)
    assert refused("tools/call", {"name": name}).message == f"Unknown tool: {name}; expected a name from the list"
    with pytest.raises(RemoteProtocolError):
        REWRITER.address("tools/call", json.dumps({"name": TWO.names.expose("a", "tools", LONG)}).encode(), {})


def test_a8_candidates_in_an_error_are_bounded() -> None:
    many = world({f"s{number}": None for number in range(CANDIDATES_MAX + 5)})
    snapshots = {server: Snapshot(many.names.catalogue(server, "tools", ["x"])) for server in many.chosen}
    with pytest.raises(RemoteProtocolError) as caught:
        Rewriter(many.names, many.uris).address("tools/call", b'{"name":"x"}', snapshots)
    assert caught.value.data == {"candidates": [f"s{number}__x" for number in range(CANDIDATES_MAX)]}


def test_u9_a_raw_uri_is_accepted_if_one_server_alone_lists_it() -> None:
    assert addressed("resources/read", {"uri": "file:///x"}) == Addressed("a", "file:///x", b'{"uri": "file:///x"}')
    error = refused("resources/read", {"uri": "memo:x"})
    assert error.message == "Unknown resource: memo:x; expected one of a+memo:x, b+memo:x"
    assert refused("resources/read", {"uri": "memo:y"}).data == {"candidates": []}


@pytest.mark.parametrize("raw", ["x__y", "l\u00e4s", "", "=?base64?eA==?="])
def test_r15_the_header_of_a_request_is_that_of_its_new_params(raw: str) -> None:
    """A header has some names as they are, and others in Base64."""
    exposed = TWO.names.expose("a", "tools", raw)
    snapshots = {"a": Snapshot(TWO.names.catalogue("a", "tools", [raw]))}
    found = REWRITER.address("tools/call", json.dumps({"name": exposed}).encode(), snapshots)
    assert found is not None
    headers = headers_for("tools/call", found.params)
    assert decode_value(dict(headers)["mcp-name"]) == raw
    check("tools/call", found.params, "2026-07-28", headers, (), header_revision="2026-07-28")


# --- Listens --------------------------------------------------------------------------------------------------------


def test_a_uri_is_routed_to_the_one_server_that_has_it() -> None:
    """URIs of no server, of several, or of the profile itself are routed to none."""
    routes = {"a+memo:x": ("a", "memo:x"), "b+memo:x": ("b", "memo:x"), "file:///x": ("a", "file:///x")}
    for uri in (*routes, "memo:x", "none:x", "artifact://sessions/1/2/x"):
        route = REWRITER.route_uri(uri, SNAPSHOTS)
        assert (None if route is None else (route.server, route.raw)) == routes.get(uri)


# --- Properties -----------------------------------------------------------------------------------------------------

fillers = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["uri", "resource_link"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["uri", "type", "x", "\0"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@st.composite
def holders(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """Results with `"@N@"` where there is a URI, as JSON in some spelling: the method, the result, and the URIs."""
    uris: list[str] = []

    def uri() -> str:
        uris.append(draw(raw_uris))
        return f"@{len(uris) - 1}@"

    def block() -> object:
        further = draw(st.dictionaries(st.sampled_from(["name", "text", "_meta"]), fillers, max_size=2))
        match draw(st.integers(0, 2)):
            case 0:
                return {"type": "resource_link", "uri": uri(), **further}
            case 1:
                return {**further, "resource": {"text": draw(fillers), "uri": uri()}, "type": "resource"}
        return {"type": "text", **further}

    blocks = [block() for _ in range(draw(st.integers(0, 3)))]
    method, value = draw(
        st.sampled_from(
            [
                ("tools/call", {"structuredContent": draw(fillers), "content": blocks}),
                ("prompts/get", {"messages": [{"content": one} for one in blocks], "x": draw(fillers)}),
                ("tasks/get", {"x": draw(fillers), "result": {"content": blocks}}),
            ]
        )
    )
    indent, is_ascii = draw(st.sampled_from([None, 1])), draw(st.booleans())
    return method, json.dumps(value, indent=indent, ensure_ascii=is_ascii), uris


def filled(text: str, uris: list[bytes]) -> bytes:
    for at, uri in enumerate(uris):
        text = text.replace(f'"@{at}@"', uri.decode(), 1)
    return text.encode()


@given(worlds(), holders(), st.data())
def test_a_result_is_the_same_bytes_but_for_its_uris(
    profile: World, holder: tuple[str, str, list[str]], data: st.DataObject
) -> None:
    method, text, raws = holder
    server = data.draw(st.sampled_from(list(profile.chosen)))
    before = [json.dumps(raw).encode() for raw in raws]
    after = [
        spelled if exposed == raw else msgspec.json.encode(exposed)
        for raw, spelled in zip(raws, before, strict=True)
        for exposed in (profile.uris.expose(server, raw),)
    ]
    rewritten = Rewriter(profile.names, profile.uris).result(server, method, filled(text, before))
    assert rewritten == filled(text, after)


@given(worlds(), st.lists(raw_names, unique=True, max_size=4), st.lists(raw_uris, unique=True, max_size=4), st.data())
def test_what_a_list_shows_can_be_asked_for(
    profile: World, tools: list[str], uris: list[str], data: st.DataObject
) -> None:
    """Each name and URI of each list leads to the server that it came from, with the words of that server."""
    rewriter = Rewriter(profile.names, profile.uris)
    server = data.draw(st.sampled_from(list(profile.chosen)))
    snapshots = {server: Snapshot(profile.names.catalogue(server, "tools", tools), {}, uris)}
    listed = json.loads(
        rewriter.result(server, "tools/list", json.dumps({"tools": [{"name": one} for one in tools]}).encode())
    )
    for raw, tool in zip(tools, listed["tools"], strict=True):
        found = rewriter.address("tools/call", json.dumps({"name": tool["name"]}).encode(), snapshots)
        assert found is not None
        assert (found.server, found.raw, json.loads(found.params)) == (server, raw, {"name": raw})
    listed = json.loads(
        rewriter.result(server, "resources/list", json.dumps({"resources": [{"uri": one} for one in uris]}).encode())
    )
    for raw, resource in zip(uris, listed["resources"], strict=True):
        found = rewriter.address("resources/read", json.dumps({"uri": resource["uri"]}).encode(), snapshots)
        assert found is not None
        assert (found.server, found.raw, json.loads(found.params)) == (server, raw, {"uri": raw})
