"""Tests of the path rewriter: paths of known files become URIs in every spelling, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from each_row import each_row
from hypothesis import assume, given
from hypothesis import strategies as st
from isthmus.core.files.calls import path_rewriter
from isthmus.core.files.calls.path_rewriter import KnownPath, reword_result, reword_text
from isthmus.core.jsonrpc import bounds

CWD = "/W/ws"
FOLDERS = ("/W/ws", "/W/in", "/W/out", "/W")
SHOT, REPORT, LOG, DONE = (
    f"artifact://sessions/s/{aid}" for aid in ("1/a.png", "2/my%20report.pdf", "3/y.log", "4/done")
)
KNOWN = (
    KnownPath(("/W/ws/a.png",), SHOT),
    KnownPath(("/W/out/my report.pdf", "/there/my report.pdf"), REPORT),
    KnownPath(("/tmp/x/y.log",), LOG),
    KnownPath(("/W/ws/done",), DONE),
)


def reword(text: str) -> str:
    return reword_text(text, KNOWN, CWD, FOLDERS)


@each_row(
    ("text", "reworded"),
    [
        ("Saved to /W/ws/a.png.", f"Saved to {SHOT}."),
        ("Saved:/W/ws/a.png", f"Saved:{SHOT}"),
        ("/W/ws/a.png", SHOT),
        ("a.png", SHOT),
        ("./a.png ./a.png", f"{SHOT} {SHOT}"),
        ("(a.png), **a.png**; [a.png, a.png]", f"({SHOT}), **{SHOT}**; [{SHOT}, {SHOT}]"),
        ("[Shot](./a.png)", f"[Shot]({SHOT})"),
        ("[Shot](a.png 'title')", f"[Shot]({SHOT} 'title')"),
        ("[a.png](a.png)", f"[a.png]({SHOT})"),
        ("[Report](../out/my%20report.pdf)", f"[Report]({REPORT})"),
        ("[Report](../out/my report.pdf)", f"[Report]({REPORT})"),
        ("[Report](</W/out/my report.pdf>)", f"[Report](<{REPORT}>)"),
        ('to "../out/my report.pdf"', f'to "{REPORT}"'),
        ("`/there/my report.pdf`", f"`{REPORT}`"),
        ("file:///W/out/my%20report.pdf", REPORT),
        ("FILE://localhost/W/ws/a.png", SHOT),
        ("file:/W/ws/a.png, file:///W/ws/a.png", f"{SHOT}, {SHOT}"),
        ("/tmp/x/y.log#L1-L2 /tmp/x/y.log:3:4", f"{LOG}#L1-L2 {LOG}:3:4"),
        ("/W/ws//a.png /W/ws/./a.png", f"{SHOT} {SHOT}"),
        ("setFiles(['/W/ws/a.png'])", f"setFiles(['{SHOT}'])"),
        ("path=/W/ws/a.png,/tmp/x/y.log", f"path={SHOT},{LOG}"),
        ("已保存到/W/ws/a.png。", f"已保存到{SHOT}。"),
        (r'{"p":"\/W\/ws\/a.png","m":"at\n/W/ws/a.png\nnow"}', rf'{{"p":"{SHOT}","m":"at\n{SHOT}\nnow"}}'),
        ("'done' and `done` and [done](done)", f"'{DONE}' and `{DONE}` and [done]({DONE})"),
        ("/W/ws/done", DONE),
    ],
)
def test_every_spelling_becomes_the_uri(text: str, reworded: str) -> None:
    assert reword(text) == reworded


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "all is done",
        "xa.png a.pngx a.png.bak a.png-1 a.png~ a.png/b a.png%20b sub/a.png ../a.png é.a.png /a.png ~/a.png $a.png",
        "x/tmp/x/y.log ../tmp/x/y.log /tmp/x/y.log.1 /tmp/x/y.logs /tmp/x/y.log/z",
        "[Shot](my a.png)",
        "https://h/W/ws/a.png?x=/W/ws/a.png&y=a.png",
        "upload://sessions/s/u/a.png artifact://sessions/s/a/a.png demo://a.png",
        "host:a.png user@a.png",
    ],
)
def test_longer_paths_words_and_urls_stay(text: str) -> None:
    assert reword(text) == text


@pytest.mark.parametrize(
    ("text", "reworded"),
    [
        ("Allowed directories:\n/W/ws", "Allowed directories:\n."),
        ("/etc/hostname not in /W/ws, /W/out", "/etc/hostname not in ., ../out"),
        ("URI: file:///W/ws\n", "URI: .\n"),
        ("/W/ws/ /W/out/ /W", "./ ../out/ .."),
        ("/W/ws/sub/b.txt: /W/in/u/f.txt:", "sub/b.txt: ../in/u/f.txt:"),
        ("ROOT:/W/ws/q 'x=/W/ws/q'", "ROOT:./q 'x=q'"),
        ("file:///W/ws/q?x#y", "q?x#y"),
        ("/W/ws2 /W/wsx/y", "../ws2 ../wsx/y"),
        ("https://h/W/ws/x /X/W/ws/x", "https://h/W/ws/x /X/W/ws/x"),
    ],
)
def test_other_paths_in_the_own_folders_become_relative(text: str, reworded: str) -> None:
    assert reword(text) == reworded


def test_from_far_away_a_folder_is_its_name() -> None:
    assert reword_text("/W/ws/a /W/out", (), "/srv/app", ("/W/ws", "/W/out")) == "ws/a out"
    assert reword_text("/W/ws/a /W/out", (), "", ("/W/ws", "/W/out")) == "ws/a out"


def test_without_a_working_directory_relative_paths_mean_nothing() -> None:
    assert reword_text("./a.png a.png /W/ws/a.png", KNOWN, "") == f"./a.png a.png {SHOT}"


def test_the_longest_name_counts() -> None:
    known = (KnownPath(("/W/ws/b.txt",), "artifact://b"), KnownPath(("/W/ws/a b.txt",), "artifact://ab"))
    assert reword_text("'a b.txt' 'b.txt' /W/ws/a b.txt", known, CWD) == "'artifact://ab' 'artifact://b' artifact://ab"


def test_a_name_alone_may_be_that_of_another_file() -> None:
    known = (KnownPath(("/W/ws/a.png",), SHOT, has_name=False),)
    assert reword_text("a.png ./a.png /W/ws/a.png (a.png)", known, CWD) == f"a.png {SHOT} {SHOT} (a.png)"


# --- Properties -------------------------------------------------------------------------------------------------------

PIECES = [
    "/W/ws", "/W/out", "/W/in", "/W", "/", "a.png", "./", "../out/", "my report.pdf", "my%20report.pdf", "/tmp/x/y.log",
    "done", " ", "\n", '"', "'", "`", "(", ")", "[", "](", "]", "<", ">", ":", ",", ".", "-", "#", "?", "%20", "\\",
    "\\n", "\\/", "=", "+", "file://", "file:", "http://h", "x", "é", "保", "{", "}", "*", "&", "~", SHOT,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@given(text=TEXTS)
def test_a_second_time_changes_nothing(text: str) -> None:
    once = reword(text)
    assert reword(once) == once


@given(text=st.text(st.sampled_from("abs/.:\"'`()[]<> \n#%é保-W")))
def test_text_without_a_known_path_stays(text: str) -> None:
    assume(not any(name in text for name in ("a.png", "my", "y.log", "done", "/W")))
    assert reword(text) == text


@given(before=TEXTS, after=TEXTS, spelling=st.sampled_from(["/W/ws/a.png", "./a.png", "file:///W/ws/a.png", "a.png"]))
def test_a_path_between_spaces_is_always_found(before: str, after: str, spelling: str) -> None:
    assume(not before[before.rfind("](") :].startswith("]("))  # the target of a link is one name
    assert f" {SHOT}\t" in reword(f"{before} {spelling}\t{after}")


@given(text=TEXTS)
def test_no_absolute_path_that_stands_apart_is_left(text: str) -> None:
    for word in reword(f"{text} /W/ws/x.txt '/W/out'").split()[-2:]:
        assert "/W" not in word


# --- Results ----------------------------------------------------------------------------------------------------------


def reworded(result: object, schema: object = None) -> Any:
    raw = json.dumps(result).encode()
    return json.loads(reword_result(raw, KNOWN, CWD, FOLDERS, None if schema is None else json.dumps(schema).encode()))


def test_all_texts_of_a_result_are_reworded() -> None:
    result = {
        "content": [
            {"type": "text", "text": "at /W/ws/a.png"},
            {"type": "image", "data": "a.png", "mimeType": "a.png"},
            {"type": "resource", "resource": {"uri": "file:///W/ws/a.png", "text": "see ./a.png"}},
            {"type": "resource", "resource": {"uri": "demo://a.png", "blob": "a.png"}},
            {"type": "resource_link", "uri": "file:///W/out/my%20report.pdf", "name": "a.png"},
            {"type": "resource_link", "uri": "file:///W/ws/other", "name": "other"},
            {"type": "unheard-of", "text": "a.png", "uri": "file:///W/ws/a.png"},
            "a.png",
        ],
        "structuredContent": {"a.png": ["/W/ws/a.png", {"x": "in /W/out", "n": 1.50}], "deep": {"er": "./a.png"}},
        "_meta": {"path": "/W/ws/a.png"},
        "other": "/W/ws/a.png",
    }
    expected = {
        "content": [
            {"type": "text", "text": f"at {SHOT}"},
            *result["content"][1:2],
            {"type": "resource", "resource": {"uri": SHOT, "text": f"see {SHOT}"}},
            result["content"][3],
            {"type": "resource_link", "uri": REPORT, "name": "a.png"},
            *result["content"][5:],
        ],
        "structuredContent": {"a.png": [SHOT, {"x": "in ../out", "n": 1.50}], "deep": {"er": SHOT}},
        "_meta": {"path": "/W/ws/a.png"},
        "other": "/W/ws/a.png",
    }
    assert reworded(result) == expected


@pytest.mark.parametrize(
    ("structured", "expected"),
    [
        ({"/W/ws/a.png": {"at": "/W/ws/a.png"}, "n": 1}, {SHOT: {"at": SHOT}, "n": 1}),
        ({"deep": [{"file:///W/ws/a.png": 1, "/W/out/other": 2}]}, {"deep": [{SHOT: 1, "../out/other": 2}]}),
        ({"/W/ws/a.png": 1, "file:///W/ws/a.png": 2, SHOT: 3}, None),
        ({"/W/ws/sub/x": 1, "sub/x": 2}, None),
        ({"/W/ws/a.png": 1, "/W/ws/./a.png": 2}, {SHOT: 1, "./a.png": 2}),
        ({"a.png": 1, "./a.png": 2, "https://h/W/ws/a.png": 3}, None),
    ],
)
def test_keys_that_are_absolute_paths_are_reworded_too(structured: Any, expected: Any) -> None:
    """Keys stay if two would become equal, or if a schema may know them. A text with the same JSON changes with
    them."""
    expected = structured if expected is None else expected
    result = {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}
    made = reworded(result)
    assert made["structuredContent"] == expected
    assert json.loads(made["content"][0]["text"]) == expected


PATH_KEY = {"s": {"/W/ws/a.png": 1}, "b": [{"/W/ws/a.png": 2}]}


@each_row(
    ("schema", "is_free"),
    [
        ({"type": "object"}, True),
        ({"properties": {"s": {"additionalProperties": {"type": "integer"}}}}, True),
        ({"additionalProperties": {"additionalProperties": {"type": "integer"}}}, True),
        ({"$ref": "#/$defs/O", "$defs": {"O": {"required": ["s"]}}}, True),
        ({"properties": {"s": {"properties": {"/W/ws/a.png": True}}}}, False),
        ({"properties": {"s": {"properties": {SHOT: True}}}}, False),
        ({"properties": {"s": {"required": ["/W/ws/a.png"]}}}, False),
        ({"properties": {"s": {"patternProperties": {"^/": True}}}}, False),
        ({"properties": {"s": {"propertyNames": {"pattern": "^/"}}}}, False),
        ({"properties": {"s": {"dependentRequired": {}}}}, False),
        ({"properties": {"s": {"const": {"/W/ws/a.png": 1}}}}, False),
        ({"allOf": [{"properties": {"s": {"$ref": "https://h/schema"}}}]}, False),
    ],
)
def test_keys_change_under_a_schema_that_cannot_tell_them_apart(schema: Any, is_free: bool) -> None:
    made = reworded({"structuredContent": PATH_KEY}, schema)["structuredContent"]
    assert made == {"s": {SHOT: 1} if is_free else PATH_KEY["s"], "b": [{SHOT: 2}]}
    assert jsonschema.Draft202012Validator(schema if is_free else {}).is_valid(made)


@each_row("schema", [{"properties": {"b": {"uniqueItems": True}}}, {"enum": [PATH_KEY]}, 5])
def test_keys_stay_where_objects_are_compared(schema: Any) -> None:
    assert reworded({"structuredContent": PATH_KEY}, schema)["structuredContent"]["b"] == PATH_KEY["b"]


def test_folders_far_away_are_called_what_they_are_for() -> None:
    text = "kept /tmp/isthmus-w1/x/y.txt beside /tmp/isthmus-w1, not /tmp/isthmus-w12"
    called = {"/tmp/isthmus-w1": "tmp"}
    assert reword_text(text, (), CWD, FOLDERS, called) == "kept tmp/x/y.txt beside tmp, not /tmp/isthmus-w12"


def test_a_text_that_repeats_the_structured_content_stays_equal_to_it() -> None:
    structured = {"a.png": "/W/ws/a.png", "kept": "/W/ws/a.png", "said": 'the "file"\n/W/ws/a.png'}
    schema = {"properties": {"kept": {"maxLength": 12}}}
    for indent in (None, 2):
        text = json.dumps(structured, indent=indent)
        made = reworded({"content": [{"type": "text", "text": text}], "structuredContent": structured}, schema)
        assert made["structuredContent"] == {**structured, "a.png": SHOT, "said": f'the "file"\n{SHOT}'}
        assert json.loads(made["content"][0]["text"]) == made["structuredContent"]
        assert ("\n" in made["content"][0]["text"]) == (indent is not None)


ODD = st.sampled_from(
    [b"1.0", b"1e400", b'"\\u00e9\\ud800"', b'{ "a":1, "b" : [ ] }', b"[ ]", b"null", b'"\\/"', b"-0"]
)


@given(odd=st.lists(ODD, min_size=4, max_size=4), space=st.sampled_from([b"", b" ", b"\n\t"]))
def test_every_other_byte_stays(odd: list[bytes], space: bytes) -> None:
    def build(path: bytes) -> bytes:
        block = b'{"type" : "text","n":%b,"text":%b"%b"}' % (odd[1], space, path)
        structured = b'{"n":%b,"p" :%b["%b"]}' % (odd[3], space, path)
        return b'{%b"x":%b,"content":[%b%b,%b],"structuredContent":%b}' % (
            space, odd[0], space, block, odd[2], structured,
        )  # fmt: skip

    assert reword_result(build(b"/W/ws/a.png"), KNOWN, CWD, FOLDERS, None) == build(SHOT.encode())
    assert reword_result(build(b"nothing"), KNOWN, CWD, FOLDERS, None) == build(b"nothing")


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[{"type":"text","type":"text","text":"a.png"}],"structuredContent":{"p":"a.png","p":"a.png"}}',
        b'{"content":{"text":"a.png"},"structuredContent":"a.png"}',
        b'{"content":[{"type":"text","text":["a.png"]},{"type":"resource","resource":"a.png"},{"type":"resource"}]}',
        b'{"content":[],"content":[{"type":"text","text":"a.png"}]}',
        b'"a.png"',
        b"a.png",
        b"",
        b'{"structuredContent":' + b"[" * 5000 + b'"a.png"' + b"]" * 5000 + b"}",
    ],
)
def test_an_unreadable_result_stays(result: bytes) -> None:
    assert reword_result(result, KNOWN, CWD, FOLDERS, None) == result


def test_half_a_surrogate_pair_stays_what_it_was() -> None:
    result = b'{"content":[{"type":"text","text":"cut \\ud83d a.png"}],"structuredContent":["\\udc00","\\udc00 a.png"]}'
    made = json.loads(reword_result(result, KNOWN, CWD, FOLDERS, None))
    assert made["content"][0]["text"] == f"cut \ud83d {SHOT}"
    assert made["structuredContent"] == ["\udc00", f"\udc00 {SHOT}"]


def test_the_work_on_one_result_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text beyond the bound stays, equally in the structured content and in its text."""
    structured = {"all": ["a.png " * 100] * 100}
    result = {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}
    monkeypatch.setattr(path_rewriter, "WORK_MAX", 1_300_000)
    made = reworded(result)
    assert made["structuredContent"]["all"][0].startswith(SHOT)
    assert "a.png a.png" in made["structuredContent"]["all"][0]
    assert json.loads(made["content"][0]["text"]) == made["structuredContent"]


def test_a_value_of_too_many_parts_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of Python for each part would take many times the room."""
    monkeypatch.setattr(bounds, "VALUES_MAX", 8_000)
    few = {"content": [], "structuredContent": {"all": ["a.png", *[0] * 7_000, "x" * 70_000]}}
    many = {"content": [], "structuredContent": {"all": ["a.png", *[0] * 9_000, "x" * 70_000]}}
    assert reworded(few)["structuredContent"]["all"][0] == SHOT
    assert reworded(many) == many


# --- Schemas ----------------------------------------------------------------------------------------------------------

A_PNG = "/W/ws/a.png"


@each_row(
    ("schema", "is_free"),
    [
        (True, True),
        ({"type": "object", "properties": {"p": {"type": "string"}}, "additionalProperties": False}, True),
        ({"properties": {"p": {"maxLength": 11}}}, False),
        ({"properties": {"p": {"maxLength": 300, "minLength": 3}}}, True),
        ({"properties": {"p": {"enum": [A_PNG, SHOT]}}}, True),
        ({"properties": {"p": {"enum": [A_PNG]}}}, False),
        ({"properties": {"p": {"const": A_PNG}}}, False),
        ({"const": {"p": A_PNG}}, False),
        ({"properties": {"p": {"pattern": "^/W"}}}, False),
        ({"properties": {"p": {"pattern": r"^.+\.png$"}}}, True),
        ({"properties": {"p": {"pattern": r"\S"}}}, True),
        ({"properties": {"p": {"pattern": "(a|b)*x?"}}}, False),
        ({"properties": {"p": {"pattern": "["}}}, False),
        ({"properties": {"p": {"format": "path"}}}, True),
        ({"properties": {"p": {"format": "uri-reference"}}}, True),
        ({"properties": {"p": {"format": "uri"}}}, False),
        ({"properties": {"p": {"format": "date"}}}, False),
        ({"properties": {"p": {"contentEncoding": "base64"}}}, False),
        ({"properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"type": "string"}}}, True),
        ({"properties": {"p": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"maxLength": 11}}}, False),
        ({"properties": {"p": {"$ref": "https://h/schema"}}}, False),
        ({"properties": {"p": {"$ref": "#/$defs/missing"}}}, False),
        ({"properties": {"p": {"$dynamicRef": "#x"}}}, False),
        ({"$ref": "#"}, True),
        ({"patternProperties": {"^p": {"maxLength": 11}}}, False),
        ({"additionalProperties": {"maxLength": 11}}, False),
        ({"anyOf": [{"properties": {"p": {"type": "null"}}}, {"properties": {"p": {"type": "string"}}}]}, True),
        ({"oneOf": [{"properties": {"p": {"pattern": "^/"}}}, {"properties": {"p": {"pattern": "^a"}}}]}, False),
        ({"not": {"properties": {"p": {"pattern": "^artifact:"}}}}, False),
        ({"not": {"required": ["q"]}}, True),
        ({"if": {"properties": {"p": {"const": A_PNG}}}, "then": True, "else": False}, False),
        ({"dependentSchemas": {"p": {"properties": {"p": {"maxLength": 11}}}}}, False),
        ({"allOf": [{"properties": {"p": {"maxLength": 11}}}]}, False),
        ({"unevaluatedProperties": {"maxLength": 11}}, False),
        ({"properties": {"p": {"$id": "https://h/p"}}}, False),
        ({"properties": {"p": "nonsense"}}, False),
        (["nonsense"], False),
    ],
)
def test_a_string_changes_only_as_its_schema_allows(schema: object, is_free: bool) -> None:
    assert reworded({"structuredContent": {"p": A_PNG}}, schema) == {
        "structuredContent": {"p": SHOT if is_free else A_PNG}
    }


@pytest.mark.parametrize(
    ("schema", "items", "made"),
    [
        ({"items": {"maxLength": 11}}, [A_PNG], [A_PNG]),
        ({"prefixItems": [{"maxLength": 11}], "items": True}, [A_PNG, A_PNG], [A_PNG, SHOT]),
        ({"items": [{"maxLength": 11}], "additionalItems": {}}, [A_PNG, A_PNG], [A_PNG, SHOT]),
        ({"contains": {"const": A_PNG}}, [A_PNG], [A_PNG]),
        ({"uniqueItems": True}, [A_PNG, "x"], [SHOT, "x"]),
        ({"uniqueItems": True}, [A_PNG, "./a.png"], [A_PNG, "./a.png"]),
        ({"uniqueItems": True}, [A_PNG, SHOT], [A_PNG, SHOT]),
        ({"uniqueItems": True}, [[A_PNG]], [[A_PNG]]),
    ],
)
def test_items_change_only_as_their_schema_allows(schema: object, items: object, made: object) -> None:
    outer = {"properties": {"all": schema}}
    assert reworded({"structuredContent": {"all": items}}, outer) == {"structuredContent": {"all": made}}


def test_a_schema_that_cannot_be_read_lets_nothing_change() -> None:
    result = b'{"structuredContent":{"p":"/W/ws/a.png"}}'
    for schema in (b"", b"{", b"[" * 100_000, b"null"):
        assert reword_result(result, KNOWN, CWD, FOLDERS, schema) == result


def test_a_schema_that_branches_without_end_is_given_up() -> None:
    names = [f"n{number}" for number in range(40)]
    defs = {name: {"allOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names}
    schema = {"$defs": defs, "additionalProperties": {"$ref": "#/$defs/n0"}}
    structured = {str(number): A_PNG for number in range(1000)}
    made = reworded({"structuredContent": structured}, schema)["structuredContent"]
    assert made["0"] == SHOT
    assert made["999"] == A_PNG


VALUES = st.sampled_from([A_PNG, "./a.png", "x", SHOT, "/W/out", 5, None])
INSTANCES = st.recursive(
    VALUES,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("pq"), below, max_size=2),
    max_leaves=6,
)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.builds(lambda n: {"maxLength": n}, st.integers(0, 30)),
    st.builds(lambda n: {"minLength": n}, st.integers(0, 30)),
    st.builds(lambda value: {"const": value}, INSTANCES),
    st.builds(lambda values: {"enum": values}, st.lists(INSTANCES, min_size=1, max_size=3)),
    st.builds(lambda text: {"pattern": text}, st.sampled_from(["^/", "png$", "^a", "(x|/)", "a.*g", r"\S"])),
    st.builds(lambda name: {"type": name}, st.sampled_from(["string", "object", "array", "null"])),
    st.sampled_from([{"uniqueItems": True}, {"$ref": "#/$defs/d"}, {"required": ["p"]}, {"minItems": 2}]),
)


LISTS = st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"])
SINGLES = st.sampled_from(
    ["not", "if", "then", "else", "items", "contains", "additionalProperties", "unevaluatedProperties"]
)
MAPS = st.sampled_from(["properties", "dependentSchemas", "patternProperties"])


def grown(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.dictionaries(LISTS, st.lists(below, min_size=1, max_size=3), min_size=1, max_size=2),
        st.dictionaries(SINGLES, below, min_size=1, max_size=3),
        st.dictionaries(MAPS, st.dictionaries(st.sampled_from("pq"), below, min_size=1), min_size=1, max_size=2),
    )


SCHEMAS = st.recursive(LEAVES, grown, max_leaves=6)


PLACES: list[Callable[[Any], dict[str, Any]]] = [
    lambda schema: {"allOf": [schema]},
    lambda schema: {"properties": {"p": schema}},
    lambda schema: {"properties": {"p": {"oneOf": [{"type": "string"}, schema]}}},
    lambda schema: {"not": {"properties": {"p": schema}}},
]


@given(
    value=st.dictionaries(st.sampled_from("pq"), INSTANCES, min_size=1),
    place=st.sampled_from(PLACES),
    schema=SCHEMAS,
    extra=SCHEMAS,
)
def test_validity_never_changes(value: Any, place: Callable[[Any], dict[str, Any]], schema: Any, extra: Any) -> None:
    """A schema accepts the value if and only if it accepts the reworded value, by an independent validator."""
    assume("$ref" not in json.dumps(extra))  # a schema that refers to itself has no end
    whole = {**place(schema), "$defs": {"d": extra}}
    validator = jsonschema.Draft202012Validator(whole)
    made = reworded({"structuredContent": value}, whole)["structuredContent"]
    assert validator.is_valid(made) == validator.is_valid(value)


def test_the_first_of_two_uris_of_one_path_counts() -> None:
    known = (KnownPath(("/W/ws/a.png", "/W/ws/a.png"), SHOT), KnownPath(("/W/ws/a.png",), LOG))
    assert reword_text("see /W/ws/a.png and a.png", known, CWD, FOLDERS) == f"see {SHOT} and {SHOT}"


def test_a_path_without_a_name_is_no_file() -> None:
    known = (KnownPath(("/W/ws/",), SHOT), KnownPath(("/W/ws/a.png",), LOG))
    assert reword_text("see /far/ and /W/ws/a.png", known, CWD, FOLDERS) == f"see /far/ and {LOG}"


def test_a_text_with_half_a_surrogate_pair_repeats_nothing() -> None:
    """Malformed JSON and a block without a text repeat nothing either."""
    result = (
        b'{"content":[{"type":"text","text":"[\\"\\ud83d a.png\\"]"},{"type":"text","text":"[a.png"},{"type":"text"}],'
        b'"structuredContent":["a.png"]}'
    )
    made = json.loads(reword_result(result, KNOWN, CWD, FOLDERS, None))
    assert made["structuredContent"] == [SHOT]
    assert made["content"] == [
        {"type": "text", "text": f'["\ud83d {SHOT}"]'},
        {"type": "text", "text": f"[{SHOT}"},
        {"type": "text"},
    ]


@pytest.mark.parametrize(
    "spelling",
    [
        '/W/ws/é "x"!.png',
        "/W/ws/%C3%A9%20%22x%22%21.png",
        "/W/ws/%C3%A9%20%22x%22!.png",
        r"/W/ws/é \"x\"!.png",
        r"/W/ws/\u00e9 \"x\"!.png",
        r"\/W\/ws\/é \"x\"!.png",
        r"\/W\/ws\/\u00e9 \"x\"!.png",
    ],
)
def test_a_name_is_found_however_texts_escape_it(spelling: str) -> None:
    """The name is plain, or escaped in a URI in either way, or in JSON within the text, as ASCII or not."""
    known = (KnownPath(('/W/ws/é "x"!.png',), SHOT),)
    assert reword_text(f"see {spelling}, please", known, CWD, FOLDERS) == f"see {SHOT}, please"
