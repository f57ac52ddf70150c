"""Tests of mentions: handles are found in any text, and their replacements are escaped for their place."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from each_row import each_row
from hypothesis import example, given, settings
from hypothesis import strategies as st
from isthmus.core.base.plan import Deliver
from isthmus.core.files.calls import mentions
from isthmus.core.files.calls.arguments import ArgumentProblem
from isthmus.core.files.calls.mentions import DEPTH_MAX, LABEL_MAX_CHARS, Mention, find_mentions, replacements
from isthmus.core.jsonrpc.splice import splice

SID, UID, AID = "a" * 32, "b" * 32, "0123456789abcdef" * 2
UP = f"upload://sessions/{SID}/{UID}"
ART = f"artifact://sessions/{SID}/{AID}/r%C3%A9sum%C3%A9.png"
PATH = "/w/in/b/a.csv"
ODD_PATH = '/w/in/b/o\'n "q" \\ é%20 \U0001f600.csv'


def found(params: bytes, *schemes: str, limit: int = 64) -> list[Mention]:
    return find_mentions(params, schemes=schemes, limit=limit)


def params_of(arguments: object, **style: Any) -> bytes:
    return json.dumps({"name": "t", "arguments": arguments, "_meta": {"h": UP}}, **style).encode()


def replaced(params: bytes, path: str = PATH, deliver: Deliver = Deliver.PATH) -> Any:
    put = splice(params, replacements([(mention, path) for mention in found(params)], lambda _: deliver))
    return json.loads(put)["arguments"]


# --- Arguments of real tools ------------------------------------------------------------------------------------------


@each_row(
    ("arguments", "expected"),
    [
        ({"uri": f"file://{UP}"}, {"uri": f"file://{PATH}"}),
        ({"uri": f"file:///{UP}"}, {"uri": f"file://{PATH}"}),
        ({"uri": f"file:{UP}/t.csv"}, {"uri": f"file://{PATH}"}),
        ({"paths": [UP, "/w/ws/in2.txt", ART]}, {"paths": [PATH, "/w/ws/in2.txt", PATH]}),
        ({"target": "#drop", "paths": [UP]}, {"target": "#drop", "paths": [PATH]}),
        ({"input_file": ART, "output_file": "/w/out/a.docx"}, {"input_file": PATH, "output_file": "/w/out/a.docx"}),
        ({"filename": "report.docx", "image_path": UP + "/logo.png"}, {"filename": "report.docx", "image_path": PATH}),
        ({"source": ART, "destination": "out2.txt"}, {"source": PATH, "destination": "out2.txt"}),
        ({"sql": f"SELECT * FROM '{UP}/t.csv'"}, {"sql": f"SELECT * FROM '{PATH}'"}),
        ({"sql": f"copy t from '{UP}' (header)"}, {"sql": f"copy t from '{PATH}' (header)"}),
        ({"files": f"{UP},{ART}; {UP}"}, {"files": f"{PATH},{PATH}; {PATH}"}),
        ({"files": f"{UP}\n{ART}"}, {"files": f"{PATH}\n{PATH}"}),
        ({"p": f"Sum up {UP}/a.txt. Then {ART}."}, {"p": f"Sum up {PATH}. Then {PATH}."}),
        ({"p": f"“{UP}/a.txt”, ({ART}), **{UP}** and `{UP}`!"}, {"p": f"“{PATH}”, ({PATH}), **{PATH}** and `{PATH}`!"}),
        ({"p": f"[a]({ART}) <{UP}>"}, {"p": f"[a]({PATH}) <{PATH}>"}),
        ({"p": f"see {ART}#L1-L2"}, {"p": f"see {PATH}#L1-L2"}),
        ({"code": f'f("a\\n{UP}\\n{UP}")'}, {"code": f'f("a\\n{PATH}\\n{PATH}")'}),
        ({"code": f'open("{UP}/é.txt")'}, {"code": f'open("{PATH}")'}),
        ({"p": UP + "/"}, {"p": PATH}),
        ({"a": {"b": [{"c": UP}]}}, {"a": {"b": [{"c": PATH}]}}),
        ({UP: UP}, {UP: PATH}),
        (UP, PATH),
        ([UP], [PATH]),
    ],
)  # fmt: skip
@each_row("style", [{}, {"ensure_ascii": False}, {"indent": 2}])
def test_handles_become_paths_wherever_they_stand(arguments: object, expected: object, style: dict[str, Any]) -> None:
    assert replaced(params_of(arguments, **style)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "upload://", "upload://sessions/x/y", f"upload://sessions/{SID}/{UID[1:]}", UP + "b", UP + "/../etc/passwd",
        UP + "/a/b", UP + "/*", UP + "-", f"x{UP}", f"my+{UP}", UP.upper(), UP.replace("sessions", "session"),
        UP + "//", f"artifact:/sessions/{SID}/{AID}", "sessions " * 20,
    ],
)  # fmt: skip
def test_text_that_only_resembles_a_handle_passes(text: str) -> None:
    assert found(params_of({"p": text, "j": json.dumps([text])})) == []


def test_a_scheme_of_ones_own_counts_beside_the_usual_ones() -> None:
    own = f"staged+x://sessions/{SID}/{UID}"
    params = params_of([own, UP, ART])
    assert [mention.text for mention in found(params, "staged+x://")] == [own, UP, ART]
    assert [mention.text for mention in found(params)] == [UP, ART]


def test_the_fields_of_a_mention() -> None:
    nested = json.dumps({"steps": [{"input": UP + "/a%20b.txt"}, [f"file://{ART}"]]})
    params = params_of({"o": {"files": [UP, f"{UP} "]}, "spec": nested})
    fields = [
        (m.label, m.key, m.kind, m.sid, m.id, m.text, m.is_whole, m.has_prefix, m.is_nested) for m in found(params)
    ]
    assert fields == [
        ("o.files[0]", "files", "upload", SID, UID, UP, True, False, False),
        ("o.files[1]", "files", "upload", SID, UID, UP, False, False, False),
        ("spec.steps[0].input", "input", "upload", SID, UID, UP + "/a%20b.txt", True, False, True),
        ("spec.steps[1][0]", "steps", "artifact", SID, AID, ART, True, True, True),
    ]


def test_nothing_but_arguments_is_searched() -> None:
    params = json.dumps({"name": UP, "arguments": {"p": 1}, "_meta": {"a": UP}}).encode()
    assert found(params) == []
    assert found(json.dumps({"name": UP}).encode()) == []


# --- Escaping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deliver", [Deliver.PATH, Deliver.FILE_URI])
@pytest.mark.parametrize("layers", range(mentions.LAYERS_MAX + 1))
def test_paths_are_escaped_for_every_layer_of_json(layers: int, deliver: Deliver) -> None:
    value: object = [{"f": UP}, "\u00fc\\ \"'"]
    for _ in range(layers):
        value = json.dumps({"j": value})
    put = replaced(params_of({"p": value}), ODD_PATH, deliver)["p"]
    for _ in range(layers):
        put = json.loads(put)["j"]
    text, other = put[0]["f"], put[1]
    assert other == "\u00fc\\ \"'"
    assert (text if deliver is Deliver.PATH else unquote(urlsplit(text).path)) == ODD_PATH
    assert deliver is Deliver.PATH or text.startswith("file:///")


def sql_value(statement: str) -> object:
    with sqlite3.connect(":memory:") as connection:
        return connection.execute(statement).fetchone()[0]


@pytest.mark.parametrize(
    "statement",
    ["select '{}'", "SELECT /* it */ 'x' || '', '{}' -- don't", "with a as (select '{}' as b) select b from a",
     "select 'it''s ' || ' {}'", "values ('{}')", "select '' || 'from  {} '"],
)  # fmt: skip
def test_quotes_are_doubled_in_sql(statement: str) -> None:
    put = replaced(params_of({"sql": statement.format(UP)}), ODD_PATH)["sql"]
    row = sqlite3.connect(":memory:").execute(put).fetchone()
    assert ODD_PATH in "".join(str(value) for value in row)


@pytest.mark.parametrize(
    ("code", "path"), [("f('{}')", ODD_PATH), ('f("{}", 1)', ODD_PATH), ("f([{{'a': '{}'}}])", ODD_PATH)]
)
def test_quotes_get_a_backslash_in_code(code: str, path: str) -> None:
    put = replaced(params_of({"code": code.format(UP)}), path)["code"]
    constants = [node.value for node in ast.walk(ast.parse(put)) if isinstance(node, ast.Constant)]
    assert path in constants


def test_other_deliveries_are_put_as_they_are() -> None:
    assert replaced(params_of({"p": UP}), "https://h/x?a='b'", Deliver.URL) == {"p": "https://h/x?a='b'"}


@pytest.mark.parametrize(
    "raw",
    [
        rb'"upload:\/\/sessions\/%b\/%b\/a.txt"', rb'"\u0075pload://\u0073\u0065ssi\u006Fns/%b/%b"',
        rb'"\ud800\ud83d\ude00\udc00 \\ \" \u00e9 upload://sessions/%b/%b\u0020"',
        rb'"{\u0022a\u0022:\u0022upload:\/\/sessions/%b/%b\u0022}"',
        rb'"[\"\\ud800\\ud800 upload:\\/\\/sessions/%b/%b\"]"',
    ],
)  # fmt: skip
def test_escapes_hide_nothing(raw: bytes) -> None:
    params = b'{"arguments": {"z":1.0,"p" : %b} }' % (raw % (SID.encode(), UID.encode()))
    (mention,) = found(params)
    assert mention.id == UID
    put = splice(params, replacements([(mention, PATH)], lambda _: Deliver.PATH))
    assert put == params[: mention.start] + PATH.encode() + params[mention.stop :]
    before = json.loads(params)["arguments"]["p"]
    expected = re.sub(r"upload:(?:\\?/){2}sessions\\?/\w{32}\\?/\w{32}(?:/a.txt)?", PATH, before)
    assert json.loads(put)["arguments"] == {"z": 1.0, "p": expected}


# --- Properties -------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A value with handles, and the value that is expected."""

    given: Any
    wanted: Any


PROSE = st.text(st.sampled_from("ab é“”\U0001f600\ud800 \n\t,;()[]{}'\"`<>|%:#?&=*"), max_size=6)
SEPARATOR = st.sampled_from([" ", ", ", "\n", "; ", '" "', "' '", "(", ") (", "“", "|", " é'"])


@st.composite
def texts(draw: st.DrawFn) -> Pair:
    given, wanted = draw(PROSE), ""
    wanted = given
    for _ in range(draw(st.integers(0, 3))):
        handle = draw(st.sampled_from([UP, ART, UP + "/a%20b.txt", UP + "/"]))
        before, after = draw(SEPARATOR), draw(SEPARATOR) + draw(PROSE)
        given, wanted = given + before + handle + after, wanted + before + PATH + after
    return Pair(given, wanted)


HANDLES = st.sampled_from([Pair(UP, PATH), Pair(ART, PATH), Pair(f"file://{UP}", f"file://{PATH}")])
OTHERS = st.sampled_from([Pair(value, value) for value in (None, True, 1.5, "", [], {}, "http://h/x.txt", "sessions")])


def listed(pairs: list[Pair]) -> Pair:
    return Pair([pair.given for pair in pairs], [pair.wanted for pair in pairs])


def keyed(pairs: dict[str, Pair]) -> Pair:
    return Pair({key: pair.given for key, pair in pairs.items()}, {key: pair.wanted for key, pair in pairs.items()})


def serialised(pair: Pair) -> Pair:
    return Pair(json.dumps(pair.given), json.dumps(pair.wanted))


def serialised_as_it_is(pair: Pair) -> Pair:
    return Pair(*(re.sub("[\ud800-\udfff]", "?", json.dumps(value, ensure_ascii=False)) for value in pair))


KEYS = st.sampled_from(["a", "file", 'é"', UP, "\ud800", "x.y", ""])
TREES = st.recursive(
    HANDLES | texts() | OTHERS,
    lambda below: (
        st.lists(below, max_size=3).map(listed)
        | st.dictionaries(KEYS, below, max_size=3).map(keyed)
        | st.lists(below, max_size=2).map(listed).map(serialised)
        | st.lists(below, max_size=2).map(listed).map(serialised_as_it_is)
    ),
    max_leaves=8,
)


def escaped_slashes(text: str) -> str:
    return text.replace("/", "\\/")


@settings(max_examples=120, deadline=None)
@given(tree=TREES, indent=st.sampled_from([None, 1]), change=st.sampled_from([str, escaped_slashes]))
def test_the_params_read_as_if_paths_had_been_written(
    tree: Pair, indent: int | None, change: Callable[[str], str]
) -> None:
    """The expected value is the same tree, made with paths instead of handles."""
    params = change(json.dumps({"arguments": tree.given, "n": 1.0}, indent=indent)).encode()
    put = splice(params, replacements([(mention, PATH) for mention in found(params)], lambda _: Deliver.PATH))
    assert json.loads(put) == {"arguments": tree.wanted, "n": 1.0}


@settings(max_examples=60, deadline=None)
@given(tree=TREES)
def test_every_other_byte_stays(tree: Pair) -> None:
    """Putting back the text of each mention at its place gives the original bytes."""
    params = json.dumps({"arguments": tree.given}, ensure_ascii=True).encode()
    placed = [(mention._replace(has_prefix=False), ("file://" if mention.has_prefix else "") + mention.text)
              for mention in found(params)]  # fmt: skip
    assert splice(params, replacements(placed, lambda _: Deliver.PATH)) == params
    starts = [mention.start for mention, _ in placed]
    assert starts == sorted(starts)


PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b'"', b"\\", b'\\"', b",", b":", b"null", b" ", b"\xff", b"\x00", b"\\ud800", b"\\u00",
     b"1e9", b'"arguments":', b'{"arguments":', b'"a":',
     UP.encode(), ART.encode(), b"file://", b"'", b"select ", b"sessions"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(PIECES, max_size=24).map(b"".join)
    | st.lists(PIECES, max_size=16).map(lambda p: b'{"arguments":%b}' % b"".join(p))
)
@example(b'{"arguments":"%b' % UP.encode())
@example(b'{"arguments":["%b\xff"]}' % UP.encode())
def test_hostile_params_are_refused_in_one_way_only(params: bytes) -> None:
    try:
        placed = [(mention, ODD_PATH) for mention in found(params)]
    except ArgumentProblem:
        assert UP.encode() in params or ART.encode() in params
        return
    put = splice(params, replacements(placed, lambda _: Deliver.PATH))
    if placed:
        json.loads(put)


# --- Bounds and refusals ----------------------------------------------------------------------------------------------


def test_arguments_with_duplicate_members_are_refused_only_with_a_handle() -> None:
    twice = b'{"arguments":{"o":{"p":"%b","p":1}}}'
    assert found(twice % b"/x sessions \\u00e9 and so on, until this text is long enough to be searched at all") == []
    with pytest.raises(ArgumentProblem, match="twice"):
        found(twice % UP.encode())
    with pytest.raises(ArgumentProblem, match="twice"):
        found(b'{"arguments":{},"arguments":{"p":"%b"}}' % UP.encode())


def test_text_that_is_nearly_json_is_searched_as_text() -> None:
    for text in ['{"a":"%s","a":"%s"}', '["%s", "%s"', '{"a":"%s"}\n{"b":"%s"}', '"%s" and "%s"', "[see %s] or %s"]:
        put = replaced(params_of({"p": text % (UP, UP)}), ODD_PATH)["p"]
        odd = json.dumps(ODD_PATH, ensure_ascii=False)[1:-1] if '"' in text else ODD_PATH
        assert put == text % (odd, odd)


def test_depth_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        return b'{"arguments":%b"%b"%b}' % (b"[" * levels, UP.encode(), b"]" * levels)

    assert len(found(nested(DEPTH_MAX))) == 1
    for levels in (DEPTH_MAX + 1, 5000):
        with pytest.raises(ArgumentProblem):
            found(nested(levels))
    text = json.dumps("[" * 5000 + f'"{UP}"' + "]" * 5000).encode()
    assert len(found(b'{"arguments":%b}' % text)) == 1  # too deep to be read as JSON, so it is text


def test_the_number_of_handles_is_bounded() -> None:
    assert len(found(params_of([UP] * 5), limit=5)) == 5
    assert len(found(params_of({"p": "[" + f'"{UP}" ' * 5 + "]"}), limit=5)) == 5
    assert len(found(params_of({"p": f'[{{"a":"{UP}"}},{{"a":"{UP}","a":"{UP}"}}]'}), limit=3)) == 3
    for many in ([UP] * 6, " ".join([UP] * 6), json.dumps([UP] * 6)):
        with pytest.raises(ArgumentProblem, match="at most 5"):
            found(params_of({"p": many}), limit=5)


def test_labels_are_cut() -> None:
    key = "k" * 5000
    mentioned = found(params_of({key: {key: [UP] * 3}}))
    assert len(mentioned) == 3
    assert all(len(m.label) <= LABEL_MAX_CHARS and len(m.key) <= LABEL_MAX_CHARS for m in mentioned)


def test_the_params_are_parsed_at_most_once_per_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes given to the parsers are counted: a wide and a deep message cost a multiple of their size, and no
    more."""
    read = 0

    def counting(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def counted(data: bytes) -> Any:
            nonlocal read
            read += len(data)
            return parse(data)

        return counted

    for name in ("members", "elements", "readable_text"):
        monkeypatch.setattr(mentions, name, counting(getattr(mentions, name)))
    wide = params_of({"p": [{"q": "sessions" + "x" * 80}] * 2000})
    assert found(wide) == []
    assert read <= 5 * len(wide)
    read = 0
    deep = b'{"arguments":%b"%b"%b}' % (b"[" * DEPTH_MAX, b"sessions" * 10_000, b"]" * DEPTH_MAX)
    assert found(deep) == []
    assert read <= (DEPTH_MAX + 3) * len(deep)


def test_a_call_that_mentions_none_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(mentions, "members", fail)
    assert found(json.dumps({"arguments": {"p": "/etc/hostname " * 20, "u": "http://h/x"}}).encode()) == []


@pytest.mark.parametrize("arguments", [b"5", b"null", b"true"])
def test_arguments_that_are_no_object_mention_nothing(arguments: bytes) -> None:
    """Handles elsewhere in the params do not count."""
    assert found(b'{"arguments":%b,"_meta":{"h":"%b"}}' % (arguments, UP.encode())) == []


def test_arguments_that_are_a_string_mention_what_is_in_it() -> None:
    (mention,) = found(b'{"arguments":"%b"}' % UP.encode())
    assert (mention.label, mention.key, mention.is_whole, mention.is_nested) == ("", "", True, False)


def test_large_values_many_levels_deep_are_not_read_again_for_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that seems to mention no handle passes, and one that does is refused."""
    monkeypatch.setattr(mentions, "WORK_SPARE_BYTES", 0)
    deep = b"[" * 8 + b'"' + b"sessions " * 20 + b'%b"' + b"]" * 8
    assert found(b'{"arguments":%b}' % (deep % b"")) == []
    with pytest.raises(ArgumentProblem, match="many levels deep"):
        found(b'{"arguments":%b}' % (deep % UP.encode()))
    assert found(b'{"arguments":%b}' % (deep[5:-5] % UP.encode()))
