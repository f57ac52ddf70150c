"""Results translated between the eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN, Features
from isthmus.core.bridge.content import ORIGINAL, block_to, restored
from isthmus.core.bridge.results import CACHEABLE, ENVELOPE, to_legacy, to_modern, wrapped_tools
from isthmus.core.jsonrpc.object_editor import ObjectEditor, each
from isthmus.core.jsonrpc.splice import elements, members, take

V1, V2, V3, V4 = LEGACY.values()
(V5,) = MODERN.values()
INFO = b'{"name":"real", "version":"1"}'
METHODS = [*sorted(CACHEABLE), "tools/call", "prompts/get", "completion/complete", "acme/own"]
PAIRS = [
    pytest.param(client, server, id=f"{client.revision}-{server.revision}")
    for client in LEGACY.values()
    for server in (*LEGACY.values(), V5)
]

# Values that no reader and writer in a row would leave as they are.
ODD = st.sampled_from(
    [
        b"1e400",
        b"-0",
        b"1.0",
        b'{"a":1,"a":2}',
        b'"\\ud800"',
        b'"\\u002f"',
        b"[ 1 ,2 ]",
        b"9" * 40,
        b"null",
        b'{"b" : {}}',
    ]
)
VENDOR_KEYS = st.sampled_from(["vendor", "x/y", "nextCursor", "é", "ttl", "com.acme/a"])
VENDOR = st.dictionaries(VENDOR_KEYS, ODD, max_size=4)


def text_of_object(parts: dict[str, bytes], space: str = "") -> bytes:
    return (
        b"{"
        + b",".join((space + json.dumps(key) + ":" + space).encode() + value for key, value in parts.items())
        + b"}"
    )


def own(method: str) -> dict[str, bytes]:
    """The members that a result of a method must have."""
    texts = b'[ {"type":"text", "text":"\\u0041"} ]'
    lists = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
    if method == "tools/call":
        return {"content": texts}
    if method == "prompts/get":
        return {"messages": b'[{"role":"user","content":{"type":"text","text":""}}]'}
    if method in lists:
        return {lists[method]: b'[ {"name":"a", "inputSchema":{"type":"object","x":1.0}} ]'}
    return {"other": b"1.50"}


@st.composite
def legacy_results(draw: st.DrawFn) -> tuple[str, bytes]:
    method = draw(st.sampled_from(METHODS))
    parts = {**own(method), **draw(VENDOR)}
    meta = draw(VENDOR)
    if meta:
        parts["_meta"] = text_of_object(meta, draw(st.sampled_from(["", " "])))
    order = draw(st.permutations(list(parts)))
    return method, text_of_object({key: parts[key] for key in order}, draw(st.sampled_from(["", " ", "\n"])))


def values(data: bytes) -> dict[str, bytes]:
    return {key: data[start:stop] for key, (start, stop) in members(data).items()}


def change(result: str, method: str = "tools/call", **options: Any) -> str:
    return to_modern(method, result.encode(), server_info=None, **options).decode()


def down(result: str, client: Features, method: str = "tools/call", server: Features = V5, **options: Any) -> str:
    return to_legacy(method, result.encode(), client=client, server=server, **options).decode()


# --- Whole results --------------------------------------------------------------------------------------------------


@given(drawn=legacy_results(), info=st.sampled_from([None, INFO]))
def test_there_and_back(drawn: tuple[str, bytes], info: bytes | None) -> None:
    """A legacy result is itself again, byte for byte, after it was translated for the stateless era and back."""
    method, result = drawn
    modern = to_modern(method, result, server_info=info)
    assert to_legacy(method, modern, client=V4, server=V5) == result


@given(drawn=legacy_results(), info=st.sampled_from([None, INFO]))
def test_a_result_is_completed_for_the_stateless_era(drawn: tuple[str, bytes], info: bytes | None) -> None:
    """Every result has a type, cacheable ones have cache hints, and nothing else is touched."""
    method, result = drawn
    before, after = values(result), values(to_modern(method, result, server_info=info))
    assert after.pop("resultType") == b'"complete"'
    if method in CACHEABLE:
        assert (after.pop("ttlMs"), after.pop("cacheScope")) == (b"0", b'"private"')
    meta_before = values(before.pop("_meta", b"{}"))
    meta_after = values(after.pop("_meta", b"{}"))
    assert meta_after.pop("io.modelcontextprotocol/serverInfo", None) == info
    assert (after, meta_after) == (before, meta_before)


@given(drawn=legacy_results(), client=st.sampled_from(list(LEGACY.values())), kept=st.booleans())
def test_no_client_with_a_session_gets_the_stateless_members(
    drawn: tuple[str, bytes], client: Features, kept: bool
) -> None:
    """No legacy result has resultType, ttlMs, cacheScope or an envelope's name in the protocol's places."""
    method, result = drawn
    editor = ObjectEditor(to_modern(method, result, server_info=INFO))
    meta = ObjectEditor(editor.get("_meta") or b"{}")
    for name in ENVELOPE:
        meta.set(name, b'"x"')
    if kept:
        meta.set("kept", b"1.0")
    editor.set("_meta", meta.json())
    after = values(to_legacy(method, editor.json(), client=client, server=V5))
    assert not {"resultType"} & set(after)
    assert method not in CACHEABLE or not {"ttlMs", "cacheScope"} & set(after)
    assert not set(ENVELOPE) & set(values(after.get("_meta", b"{}")))
    assert not kept or values(after["_meta"])["kept"] == b"1.0"


@pytest.mark.parametrize("features", LEGACY.values(), ids=lambda features: features.revision)
@given(drawn=legacy_results())
def test_equal_eras_pass_the_very_object(features: Features, drawn: tuple[str, bytes]) -> None:
    """A result between equal revisions is not read, even if it is unreadable."""
    method, result = drawn
    for data in (result, b"[]", b'{"resultType":"x","a":1,"a":2}'):
        assert to_legacy(method, data, client=features, server=features) is data


@each_row(("client", "server"), PAIRS)
@each_row("method", METHODS)
def test_a_plain_result_passes_between_any_two(method: str, client: Features, server: Features) -> None:
    """A result that every revision can express passes as the very same object."""
    result = text_of_object(own(method))
    passed = to_legacy(method, result, client=client, server=server)
    assert passed == result


@pytest.mark.parametrize("kind", ["input_required", "task", "acme", 5, None, {}], ids=str)
def test_no_incomplete_result_reaches_a_session(kind: object) -> None:
    """A client with a session would take such a result for a finished one."""
    result = json.dumps({"resultType": kind, "content": []}).encode()
    with pytest.raises(RemoteProtocolError, match='expected "complete"'):
        to_legacy("tools/call", result, client=V4, server=V5)


@each_row("method", METHODS)
@each_row("result", [b"[]", b"null", b"1", b'"x"', b'{"_meta":1,"_meta":2}', b'{"_meta":{"a":1,"a":2}}'])
def test_an_unreadable_result_is_the_servers_fault(method: str, result: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        to_modern(method, result, server_info=INFO)
    with pytest.raises(RemoteProtocolError):
        to_legacy(method, result, client=V4, server=V5)


# --- Towards the stateless era --------------------------------------------------------------------------------------


def test_misleading_members_are_kept_aside() -> None:
    """A legacy server's own resultType and impossible hints are kept in `_meta`, where they mean nothing."""
    result = '{"tools":[],"resultType":"task","ttlMs":-5,"cacheScope":["public"]}'
    assert json.loads(change(result, "tools/list")) == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"dev.isthmus/shadowed": {"resultType": "task", "ttlMs": -5, "cacheScope": ["public"]}},
    }
    assert json.loads(change('{"_meta":[1],"content":[]}')) == {
        "content": [],
        "resultType": "complete",
        "_meta": {"dev.isthmus/shadowed": {"_meta": [1]}},
    }


def test_usable_cache_hints_are_kept() -> None:
    result = '{"tools":[],"resultType":"complete","ttlMs":60000,"cacheScope":"public"}'
    assert change(result, "tools/list") == result
    assert change('{"ttlMs":"vendor"}', "acme/own") == '{"ttlMs":"vendor","resultType":"complete"}'


def test_a_server_that_names_itself_is_not_named_again() -> None:
    result = b'{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own","version":"2"}}}'
    assert to_modern("completion/complete", result, server_info=INFO) is result


def test_the_related_task_of_a_result_is_removed() -> None:
    related = '"io.modelcontextprotocol/related-task":{"taskId":"1"}'
    assert change(f'{{"content":[],"_meta":{{{related}}}}}') == '{"content":[],"resultType":"complete"}'
    assert (
        change(f'{{"content":[],"_meta":{{{related},"a":1}}}}')
        == '{"content":[],"_meta":{"a":1},"resultType":"complete"}'
    )


def test_tools_lose_their_task_support() -> None:
    tools = '[{"name":"a","execution":{"taskSupport":"required"},"inputSchema":{}},{"name":"b", "x":1.0},7]'
    after = values(change(f'{{"tools":{tools}}}', "tools/list").encode())
    assert after["tools"] == b'[{"name":"a","inputSchema":{}},{"name":"b", "x":1.0},7]'
    hidden = change('{"tools":[{"name":"a","\\u0065xecution":{}}]}', "tools/list")
    assert json.loads(hidden)["tools"] == [{"name": "a"}]


def test_schemas_pass_as_they_are() -> None:
    """An inputSchema is never touched, nor is an outputSchema towards the stateless era, wrapped or not."""
    tools = (
        b'[{"name":"a","inputSchema":{"type":"object", "oneOf":[ {} ]},"outputSchema":{"type":"object",'
        b'"properties":{"result":{"type":"array"}},"required":["result"]}}]'
    )
    modern = to_modern("tools/list", b'{"tools":%b}' % tools, server_info=INFO)
    assert values(modern)["tools"] == tools
    assert values(to_legacy("tools/list", modern, client=V1, server=V5))["tools"] == tools


@pytest.mark.parametrize("missing", ["{}", '{"content":null}', '{"isError":false}'])
def test_a_tool_result_has_content(missing: str) -> None:
    """SDK clients of the stateless era refuse one without."""
    assert json.loads(change(missing))["content"] == []


def test_null_is_no_structured_content_of_a_legacy_server() -> None:
    result = '{"content":[],"structuredContent":null}'
    assert change(result) == '{"content":[],"resultType":"complete"}'
    assert down(result, V2, server=V4) == result


# --- Structured content ---------------------------------------------------------------------------------------------

SC = st.sampled_from(["[1, 2.0]", '"x\\u00e9"', "null", "true", "7", "1e400", '{"a" : 1}'])


@given(value=SC, texts=st.lists(st.sampled_from(["hello", "[1,2]", "7", "true", "null", '{"a":1}']), max_size=2))
def test_structured_content_that_is_no_object_is_in_a_text(value: str, texts: list[str]) -> None:
    """A text block's JSON equals structuredContent whenever that is no object; an added block has its bytes."""
    content = [{"type": "text", "text": text} for text in texts]
    result = f'{{"content":{json.dumps(content)},"structuredContent":{value}}}'
    outs = [down(result, client) for client in LEGACY.values()]
    if value != "null":
        outs.append(change(result))
    for out, client in zip(outs, [*LEGACY.values(), None], strict=False):
        after = [block["text"] for block in json.loads(out)["content"]]
        assert after[: len(texts)] == texts
        is_object = value.startswith("{")
        texts_alike = [text for text in after if is_like(text, value)]
        if not is_object or (client is not None and not client.structured):
            assert texts_alike
            assert len(after) == len(texts) + (not any(is_like(text, value) for text in texts))
            assert len(after) == len(texts) or after[-1] == value
        else:
            assert after == texts


def is_like(text: str, value: str) -> bool:
    try:
        loaded = json.loads(text)
    except ValueError:
        return False
    return text == value or (loaded == json.loads(value) and isinstance(loaded, bool) == (value in ("true", "false")))


@pytest.mark.parametrize("client", LEGACY.values(), ids=lambda features: features.revision)
def test_values_and_schemas_are_wrapped_alike(client: Features) -> None:
    """A tool that is listed with a wrapped schema returns wrapped values, even objects."""
    tools = (
        '{"tools":[{"name":"any","outputSchema":{"anyOf":[{"type":"object"},{"type":"null"}]}},'
        '{"name":"object","outputSchema":{"type":"object"}},{"name":"none"},{"name":"odd","outputSchema":true},3]}'
    )
    assert wrapped_tools(tools.encode()) == {"any"}
    listed = json.loads(down(tools, client, "tools/list"))["tools"]
    assert listed[0]["outputSchema"]["properties"] == {"result": {"anyOf": [{"type": "object"}, {"type": "null"}]}}
    assert listed[1:] == json.loads(tools)["tools"][1:]
    value = '{"content":[],"structuredContent":%s}'
    assert json.loads(down(value % '{"a":1}', client, is_wrapped=True))["structuredContent"] == {"result": {"a": 1}}
    assert json.loads(down(value % '{"a":1}', client))["structuredContent"] == {"a": 1}
    assert json.loads(down(value % "[ 1 ]", client))["structuredContent"] == {"result": [1]}


def test_legacy_servers_values_are_not_wrapped() -> None:
    """Only an older client gets a value as text, where its revision has no member for it."""
    result = '{"content":[],"structuredContent":{"a":1}}'
    assert json.loads(down(result, V2, server=V4)) == {
        "content": [{"type": "text", "text": '{"a":1}'}],
        "structuredContent": {"a": 1},
    }
    assert down(result, V3, server=V4) == result


# --- Content blocks -------------------------------------------------------------------------------------------------

AUDIO = '{"type":"audio", "data":"UklGRg==","mimeType":"audio/wav","annotations":{"priority":1.0},"_meta":{"a":[1 ,2]}}'
LINK = '{"type":"resource_link","uri":"file:///a","name":"a","description":"about \\u00e9","size":1e3}'
TEXT = '{"type":"text","text":"hi"}'


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["audio", "resource_link", "text", "image", "resource", "acme"]))
    needed = {"audio": ["data", "mimeType"], "resource_link": ["uri", "name"]}.get(kind, ["text"])
    parts = {"type": json.dumps(kind).encode()}
    for name in needed:
        parts[name] = draw(st.sampled_from([b'"aGk="', b'"\\u0041"', b'"\\ud800x"']))
    if draw(st.booleans()):
        del parts[draw(st.sampled_from(list(parts)))]
    parts |= draw(st.dictionaries(st.sampled_from(["annotations", "description", "size", "_meta"]), ODD, max_size=2))
    return text_of_object(parts, draw(st.sampled_from(["", " "])))


@given(block=blocks(), client=st.sampled_from(list(LEGACY.values())), then=st.sampled_from(list(LEGACY.values())))
def test_a_block_is_itself_again_after_a_second_proxy(block: bytes, client: Features, then: Features) -> None:
    """up(down(block)) is the block, byte for byte; going down twice is going down once, to the older side."""
    lowered = block_to(block, client)
    assert restored(lowered) == block
    assert restored(block) is block
    assert block_to(lowered, V5) == block
    assert restored(block_to(lowered, then)) == block


@given(block=blocks(), client=st.sampled_from(list(LEGACY.values())))
def test_clients_see_types_they_know(block: bytes, client: Features) -> None:
    """A well-formed block has a type of the client's revision; a malformed one passes unchanged."""
    lowered = block_to(block, client)
    kind = json.loads(block).get("type")
    is_new = (kind == "audio" and not client.audio) or (kind == "resource_link" and not client.resource_links)
    is_whole = {"audio": {"data", "mimeType"}, "resource_link": {"uri", "name"}}.get(kind, set()) <= set(
        json.loads(block)
    )
    if not is_new or not is_whole:
        assert lowered is block
    elif b"\\ud800" not in (take(block, members(block).get("mimeType")) or b""):
        assert json.loads(lowered)["type"] in ("resource", "text")


def test_the_stand_ins_of_blocks() -> None:
    audio, link = json.loads(block_to(AUDIO.encode(), V1)), json.loads(block_to(LINK.encode(), V2))
    assert audio["resource"].pop("uri").startswith("isthmus:audio/")
    assert audio == {
        "type": "resource",
        "resource": {"mimeType": "audio/wav", "blob": "UklGRg=="},
        "annotations": {"priority": 1.0},
        "_meta": {ORIGINAL: json.loads(AUDIO)},
    }
    assert link == {"type": "text", "text": "a <file:///a>: about é", "_meta": {ORIGINAL: json.loads(LINK)}}


def test_a_reformatted_stand_in_is_still_one() -> None:
    """A hop between two proxies may order and space JSON differently, and escape slashes."""
    again = json.dumps(json.loads(block_to(AUDIO.encode(), V1)), indent=1, sort_keys=True).replace("/", "\\/").encode()
    assert json.loads(restored(again)) == json.loads(AUDIO)


@pytest.mark.parametrize(
    "forged",
    [
        {"type": "text", "text": "harmless", "_meta": {ORIGINAL: json.loads(LINK)}},
        {"type": "text", "text": "hi", "_meta": {ORIGINAL: json.loads(TEXT)}},
        {"type": "text", "text": "hi", "_meta": {ORIGINAL: "x"}},
        {"type": "text", "text": "hi", "_meta": "dev.isthmus/original"},
        {**json.loads(block_to(LINK.encode(), V1)), "more": 1},
    ],
    ids=["other text", "no such type", "no object", "no meta", "more"],
)
def test_a_forged_marker_is_not_believed(forged: object) -> None:
    """A block is what it shows, so that nobody can hide another behind it."""
    block = json.dumps(forged).encode()
    assert restored(block) is block
    assert block_to(block, V4) is block


@pytest.mark.parametrize(
    ("client", "server", "audio", "link"),
    [
        pytest.param(client, server, client.audio, client.resource_links, id=f"{client.revision}-{server.revision}")
        for client in LEGACY.values()
        for server in (*LEGACY.values(), V5)
    ],
)
@pytest.mark.parametrize("is_marked", [False, True], ids=["plain", "marked"])
def test_blocks_within_results(client: Features, server: Features, audio: bool, link: bool, is_marked: bool) -> None:
    """Tools' content and prompts' messages are treated alike; stand-ins are undone where the client can read the
    original."""
    sent = (
        [AUDIO, LINK, TEXT]
        if not is_marked
        else [block_to(block.encode(), V1).decode() for block in (AUDIO, LINK, TEXT)]
    )
    called = down(f'{{"content":[{", ".join(sent)}]}}', client, server=server)
    messages = ",".join(f'{{"role":"user", "content":{block}}}' for block in sent)
    prompted = down(f'{{"messages":[{messages}]}}', client, "prompts/get", server)
    content = values(called.encode())["content"]
    got = [content[start:stop] for start, stop in elements(content)]
    texts_alike = [json.loads(prompted)["messages"][index]["content"] for index in range(3)]
    assert [json.loads(block) for block in got] == texts_alike
    sees_new = is_marked or server.audio  # a server is not corrected by what it should not know
    assert (got[0] == AUDIO.encode()) == (audio or not sees_new)
    assert (got[1] == LINK.encode()) == (
        link or not (is_marked or server.resource_links or (server.audio and not audio))
    )
    assert got[2] == TEXT.encode()


def test_markers_are_undone_towards_the_new_era() -> None:
    lowered = block_to(AUDIO.encode(), V1).decode()
    assert change(f'{{"content":[{lowered}]}}') == f'{{"content":[{AUDIO}],"resultType":"complete"}}'
    prompt = '{"messages":[{"role":"user","content":%s}]%s}'
    assert change(prompt % (lowered, ""), "prompts/get") == prompt % (AUDIO, ',"resultType":"complete"')


# --- The object editor ----------------------------------------------------------------------------------------------


@given(
    parts=VENDOR,
    space=st.sampled_from(["", " ", "\r\n\t"]),
    orders=st.lists(st.tuples(VENDOR_KEYS, ODD | st.none()), max_size=6),
)
def test_an_object_editor_is_a_dict_that_keeps_spelling(
    parts: dict[str, bytes], space: str, orders: list[tuple[str, bytes | None]]
) -> None:
    """Setting and removing members does what it does to a dict, and every value keeps its bytes."""
    data = text_of_object(parts, space)
    editor, model = ObjectEditor(data), dict(parts)
    for key, value in orders:
        if value is None:
            assert editor.remove(key) == model.pop(key, None)
        else:
            editor.set(key, value)
            model[key] = value
        assert values(editor.json()) == model
        assert dict(editor.items()) == model
    assert bool(editor) == bool(model)
    assert orders or editor.json() is data


@given(items=st.lists(ODD, max_size=4))
def test_each_changes_the_items_that_its_function_changes(items: list[bytes]) -> None:
    array = b"[ " + b" , ".join(items) + b"]"
    assert each(array, lambda item: item) is array
    assert (
        each(array, lambda item: b"1" if item == b"null" else item)
        == b"[ " + b" , ".join(b"1" if item == b"null" else item for item in items) + b"]"
    )
    assert each(b"{}", lambda item: b"1") == b"{}"


# --- Malformed results ------------------------------------------------------------------------------------------------


def test_a_block_that_is_no_object_passes_as_it_is() -> None:
    """Other blocks beside it are translated."""
    content = '["text",7,%s]'
    for client in LEGACY.values():
        assert block_to(b'"text"', client) == b'"text"'
    shown = values(down('{"content":%s}' % (content % AUDIO), V1).encode())["content"].decode()
    assert shown == content % block_to(AUDIO.encode(), V1).decode()


@pytest.mark.parametrize(
    "block",
    [
        '{"type":"resource_link","uri":"file:///a"}',
        '{"type":"resource_link","name":"a"}',
        '{"type":"resource_link","uri":1,"name":"a"}',
        '{"type":"audio","data":"UklGRg=="}',
        '{"type":"audio","data":1,"mimeType":"audio/wav"}',
        '{"type":"audio","data":"UklGRg==","mimeType":null}',
        '{"type":"audio","mimeType":"audio/wav"}',
    ],
)
def test_a_block_without_a_required_member_has_no_stand_in(block: str) -> None:
    assert block_to(block.encode(), V1) == block.encode()


def test_a_link_without_a_description_is_named_all_the_same() -> None:
    link = b'{"type":"resource_link","uri":"file:///a","name":"b"}'
    assert json.loads(block_to(link, V2))["text"] == "b <file:///a>"
    empty = b'{"type":"resource_link","uri":"file:///a","name":"b","description":""}'
    assert json.loads(block_to(empty, V2))["text"] == "b <file:///a>"


def test_null_is_no_meta() -> None:
    """Legacy servers write every member their types have, and no null is kept aside."""
    assert change('{"content":[],"_meta":null}') == '{"content":[],"resultType":"complete"}'
    named = to_modern("tools/call", b'{"content":[],"_meta":null}', server_info=INFO)
    assert json.loads(named)["_meta"] == {"io.modelcontextprotocol/serverInfo": json.loads(INFO)}


def test_a_prompts_message_without_content_passes_as_it_is() -> None:
    messages = '[{"role":"user"},"odd",{"role":"user","content":%s}]'
    shown = values(down('{"messages":%s}' % (messages % AUDIO), V1, "prompts/get").encode())["messages"].decode()
    assert shown == messages % block_to(AUDIO.encode(), V1).decode()


@pytest.mark.parametrize("content", ["", ',"content":null', ',"content":[]'])
def test_structured_content_without_content_gets_a_text(content: str) -> None:
    shown = json.loads(down(f'{{"structuredContent":[1]{content}}}', V4))
    assert shown == {"structuredContent": {"result": [1]}, "content": [{"type": "text", "text": "[1]"}]}
