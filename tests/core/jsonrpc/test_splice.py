"""One level of JSON as spans: the reader agrees with the standard library, and edits touch no other bytes."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError
from isthmus.core.jsonrpc.bounds import DEPTH_SPARE, check_depth, check_utf8, deeper
from isthmus.core.jsonrpc.splice import (
    Edit,
    build_object,
    elements,
    extend_array,
    insert_members,
    items_of,
    members,
    remove_member,
    remove_members,
    set_member,
    splice,
    take,
)

# --- JSON texts, with every freedom the grammar gives ---------------------------------------------------------------

SPACE = st.text(alphabet=" \t\r\n", max_size=2).map(str.encode)
ATOMS = [b"0", b"-0", b"1", b"12", b"1e400", b"1.0", b"-1.5E+10", b"0.1e-7", b"true", b"false", b"null", b'""']
ATOMS += [b"9" * 400]
PIECES = [
    b"a",
    b" ",
    b"\\n",
    b'\\"',
    b"\\\\",
    b"\\/",
    b"\\u0061",
    b"\\u00e9",
    b"\\ud83d\\ude00",
    b"}",
    b"]",
    b",",
    b":",
]
PIECES += ["é".encode(), "\u2028".encode(), "😀".encode(), b"\x7f", b"/*"]
HALVES = [b"\\ud800", b"\\uDFFF", b"\\\\ud800", b"\\ud800\\ud800\\udc00"]


def quoted(pieces: list[bytes]) -> bytes:
    return b'"' + b"".join(pieces) + b'"'


WHOLE_STRINGS = st.lists(st.sampled_from(PIECES), max_size=4).map(quoted)
STRINGS = st.lists(st.sampled_from(PIECES + HALVES), max_size=4).map(quoted)


@st.composite
def listed(draw: st.DrawFn, open_close: bytes, items: st.SearchStrategy[bytes]) -> bytes:
    """Items between two brackets, with white space anywhere."""
    texts = [draw(SPACE) + text + draw(SPACE) for text in draw(st.lists(items, max_size=3))]
    return open_close[:1] + (b",".join(texts) or draw(SPACE)) + open_close[1:]


def member(key: st.SearchStrategy[bytes], value: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(key, SPACE, st.just(b":"), SPACE, value).map(b"".join)


VALUES = st.recursive(
    st.sampled_from(ATOMS) | STRINGS,
    lambda inner: listed(b"[]", inner) | listed(b"{}", member(STRINGS, inner)),  # keys may well repeat in there
    max_leaves=6,
)


@st.composite
def objects(draw: st.DrawFn) -> tuple[bytes, dict[str, bytes], list[bytes]]:
    """An object's text, its members' values by key, and its members' texts; no key twice at this level."""
    keys = draw(st.lists(WHOLE_STRINGS, max_size=4, unique_by=json.loads))
    values = {json.loads(key): draw(VALUES) for key in keys}
    texts = [key + draw(SPACE) + b":" + draw(SPACE) + value for key, value in zip(keys, values.values(), strict=True)]
    inner = b",".join(draw(SPACE) + text + draw(SPACE) for text in texts) or draw(SPACE)
    return draw(SPACE) + b"{" + inner + b"}" + draw(SPACE), values, texts


@st.composite
def arrays(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    items = draw(st.lists(VALUES, max_size=4))
    inner = b",".join(draw(SPACE) + text + draw(SPACE) for text in items) or draw(SPACE)
    return draw(SPACE) + b"[" + inner + b"]" + draw(SPACE), items


class Pairs(list[tuple[str, object]]):
    """A decoded object with nothing merged."""


def refuse(text: str) -> NoReturn:
    raise ValueError(text)


def parse(data: bytes) -> object:
    """The standard library's reading: numbers as written, objects as pairs."""
    return json.loads(data.decode(), object_pairs_hook=Pairs, parse_int=str, parse_float=str, parse_constant=refuse)


def refused(call: Callable[..., object], *args: object) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        call(*args)
    return caught.value


def problem_of(call: Callable[[], object]) -> RemoteProtocolError | None:
    """The error that the call raised, if it was the peer's; any other exception fails the test."""
    try:
        call()
    except RemoteProtocolError as error:
        return error
    return None


# --- Reading --------------------------------------------------------------------------------------------------------


@given(made=objects())
def test_spans_are_the_members(made: tuple[bytes, dict[str, bytes], list[bytes]]) -> None:
    """Each span holds exactly its value's bytes, under the key by value, in order; the standard library agrees."""
    data, values, _ = made
    spans = members(data)
    assert [(key, take(data, span)) for key, span in spans.items()] == list(values.items())
    assert parse(data) == [(key, parse(data[span.start : span.stop])) for key, span in spans.items()]


@given(made=arrays())
def test_spans_are_the_elements(made: tuple[bytes, list[bytes]]) -> None:
    """Each span holds exactly its element's bytes, in order; the standard library agrees."""
    data, items = made
    spans = elements(data)
    assert [data[start:stop] for start, stop in spans] == items
    assert parse(data) == [parse(data[start:stop]) for start, stop in spans]


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"a\\udfffb"', b'"\\\\\\ud800"', b'"\\ud83d\\ud83d\\ude00"'])
def test_half_a_surrogate_pair_is_kept(text: bytes) -> None:
    """Text cut in the middle of a character passes unchanged, in values, elements and keys."""
    data = b'{"a":' + text + b', "b":[' + text + b"]," + text[:-1] + b'k":1}'
    spans = members(data)
    assert take(data, spans["a"]) == text
    assert take(data, spans["b"]) == b"[" + text + b"]"
    assert list(spans)[2].endswith("k")
    assert [b"[%b]" % text for _ in elements(b"[" + text + b"]")] == [take(data, spans["b"])]
    assert set_member(data, "a", b"0") == data.replace(text, b"0", 1)
    assert remove_member(data, "a") == data.replace(b'"a":' + text + b", ", b"")
    assert refused(members, b'{"\\ud800":1,"\\ud800":2}').rpc_code == INVALID_REQUEST


# --- Duplicates -----------------------------------------------------------------------------------------------------

DUPLICATES = [b"1", b"12", b"1.0", b"-1", b"10", b"1e4", b"1e400", b'"1"', b'""', b"{}", b"[]", b'{"a":1}', b"true"]
SPELLINGS = [b'"key"', b'"\\u006bey"', b'"k\\u0065y"']


@pytest.mark.parametrize("second", SPELLINGS)
@pytest.mark.parametrize("first", SPELLINGS)
def test_a_key_twice_is_refused(first: bytes, second: bytes) -> None:
    """A repeated key is refused, however it is spelled, whatever its two values are, and whatever lies between."""
    for one, two in itertools.product(DUPLICATES, repeat=2):
        for between in (b"", b'"x":1,', b'"x":{"key":1},'):
            for space in (b"", b" "):
                data = b"{" + first + b":" + one + space + b"," + between + second + space + b":" + two + b"}"
                error = refused(members, data)
                assert error.rpc_code == INVALID_REQUEST
                assert "twice" in error.message


@given(made=objects(), where=st.integers(0, 3), value=VALUES)
def test_any_key_repeated_is_refused(
    made: tuple[bytes, dict[str, bytes], list[bytes]], where: int, value: bytes
) -> None:
    """A member added a second time, at the end or the start, is never overlooked."""
    data, values, _ = made
    if not values:
        return
    key = json.dumps(list(values)[where % len(values)]).encode()
    inner = data.strip(b" \t\r\n")[1:-1]
    for doubled in (b"{" + inner + b"," + key + b":" + value + b"}", b"{" + key + b":" + value + b"," + inner + b"}"):
        assert "twice" in refused(members, doubled).message


def test_a_key_twice_below_the_level_is_left_alone() -> None:
    """Deeper levels are not judged, and stay as they are."""
    data = b'{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}'
    assert [take(data, span) for span in members(data).values()] == [b'{"b":1,"b":2}', b'[{"d":1,"d":1}]']
    assert set_member(data, "e", b"1") == data[:-1] + b',"e":1}'


def test_an_error_does_not_repeat_a_huge_key() -> None:
    """The error stays short, and reading a huge key stays cheap."""
    key = b'"' + b"k\\n" * 200_000 + b'"'
    assert len(refused(members, b"{" + key + b":1," + key + b":2}").message) < 300
    assert len(members(b"{" + key + b":1}")) == 1


# --- Malformed ------------------------------------------------------------------------------------------------------

FRAGMENTS = (
    ATOMS + PIECES + HALVES + [b"{", b"[", b'"', b"\\", b"\\u", b"00", b".", b"e", b"+", b"-", b"NaN", b"Infinity"]
)
FRAGMENTS += [
    b"\x00",
    b"\x1f",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b'"a":1',
    b"'a'",
    b"\x0b",
    b"\xc2\xa0",
]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """JSON with a stretch cut out and something else put in."""
    data = draw(objects())[0] if draw(st.booleans()) else draw(arrays())[0]
    start = draw(st.integers(0, len(data)))
    stop = draw(st.integers(start, min(start + 3, len(data))))
    return data[:start] + b"".join(draw(st.lists(st.sampled_from(FRAGMENTS), max_size=2))) + data[stop:]


def judge(data: bytes) -> tuple[bool, bool]:
    """Returns whether the standard library reads an object with distinct keys in it, and whether it reads an array."""
    try:
        value = parse(data)
    except ValueError:
        return False, False
    if isinstance(value, Pairs):
        keys = [re.sub("[\ud800-\udfff]", "\ufffd", key) for key, _ in value]
        return len(set(keys)) == len(keys), False
    return False, isinstance(value, list)


@given(data=mutants() | st.binary(max_size=12) | st.lists(st.sampled_from(FRAGMENTS), max_size=8).map(b"".join))
def test_text_is_json_exactly_if_the_standard_library_accepts_it(data: bytes) -> None:
    """Acceptance agrees with an independent reader, and a refusal is always the peer's error."""
    for read, expected in zip((members, elements), judge(data), strict=True):
        problem = problem_of(lambda read=read: (check_utf8(data), read(data)))  # type: ignore[misc]
        assert (problem is None) == expected
        assert problem is None or problem.rpc_code in (PARSE_ERROR, INVALID_REQUEST)


@given(data=mutants() | st.binary(max_size=12))
def test_unusable_bytes_raise_one_error(data: bytes) -> None:
    """Every reader and editor refuses unusable input with one error, unchecked bytes included."""
    for call in (
        lambda: members(data),
        lambda: elements(data),
        lambda: set_member(data, "k", b"1"),
        lambda: remove_member(data, "k"),
        lambda: remove_members(data, {"k"}),
        lambda: insert_members(data, {"not a key of these": b"1"}),
        lambda: items_of(data),
        lambda: extend_array(data, [b"1"]),
        lambda: extend_array(data, [b"1"], at_front=True),
    ):
        problem = problem_of(call)
        assert problem is None or problem.rpc_code in (PARSE_ERROR, INVALID_REQUEST)


@pytest.mark.parametrize(
    ("data", "rpc_code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b"{}{}", PARSE_ERROR),
        (b'{"a":01}', PARSE_ERROR),
        (b'{"a":"\n"}', PARSE_ERROR),
        (b'{"a":NaN}', PARSE_ERROR),
        (b'{"\xff":1}', PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
        (b'"a"', INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
    ],
)
def test_broken_json_and_other_values_have_their_codes(data: bytes, rpc_code: int) -> None:
    """JSON-RPC has a code of its own for text that is no JSON."""
    assert refused(members, data).rpc_code == rpc_code


@pytest.mark.parametrize("depth", [2_000, 1_000_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    """No depth exhausts the stack."""
    for inner in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b'["\\ud800",' + b"[" * depth):
        for error in (refused(members, b'{"a":' + inner + b"}"), refused(elements, b"[" + inner + b"]")):
            assert error.rpc_code == PARSE_ERROR
            assert "nested too deeply" in error.message or inner.startswith(b'["')


@given(data=st.binary(max_size=8))
def test_utf8_is_checked_as_the_decoder_does(data: bytes) -> None:
    """Bytes pass if they decode, and the error names the first that does not."""
    wrong_at = None
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        wrong_at = problem.start
    error = problem_of(lambda: check_utf8(data))
    assert (error is None) == (wrong_at is None)
    assert error is None or (error.rpc_code == PARSE_ERROR and f"offset {wrong_at}," in error.message)


# --- Editing --------------------------------------------------------------------------------------------------------


@given(
    data=st.binary(max_size=20), cuts=st.lists(st.integers(0, 20), max_size=6), texts=st.lists(st.binary(max_size=3))
)
def test_splicing_is_cutting_and_pasting(data: bytes, cuts: list[int], texts: list[bytes]) -> None:
    """Edits in any order replace their stretches, and nothing else changes."""
    at = sorted(min(cut, len(data)) for cut in cuts)
    stretches = list(zip(at[::2], at[1::2], strict=False))
    edits = [Edit(*stretch, text) for stretch, text in zip(stretches, texts, strict=False)]
    if len({edit.start for edit in edits}) < len(edits):
        return  # two insertions at one place have no order to agree on
    expected = data
    for edit in reversed(edits):
        expected = expected[: edit.start] + edit.text + expected[edit.stop :]
    assert splice(data, reversed(edits)) == expected
    assert splice(data, []) == data


def test_overlapping_edits_are_the_callers_mistake() -> None:
    with pytest.raises(AssertionError):
        splice(b"abcdef", [Edit(0, 3, b""), Edit(2, 4, b"")])


@given(made=objects(), value=VALUES)
def test_a_member_set_is_set_and_all_else_stays(
    made: tuple[bytes, dict[str, bytes], list[bytes]], value: bytes
) -> None:
    """The member is replaced where it stands, or added at the end; every other byte is where it was."""
    data, values, _ = made
    for key in values:
        start, stop = members(data)[key]
        assert set_member(data, key, value) == data[:start] + value + data[stop:]
    new = set_member(data, "new", value)
    assert [(key, take(new, span)) for key, span in members(new).items()] == [*values.items(), ("new", value)]
    end = data.rindex(b"}")
    assert new.startswith(data[:end])
    assert new.endswith(data[end:])
    assert parse(new) == [*parse(data), ("new", parse(value))]  # type: ignore[misc]


@given(made=objects())
def test_a_member_removed_leaves_the_others_as_they_were(made: tuple[bytes, dict[str, bytes], list[bytes]]) -> None:
    """The others keep their order and every byte of key and value."""
    data, values, texts = made
    assert remove_member(data, "absent") == data
    for gone, key in enumerate(values):
        left = remove_member(data, key)
        assert parse(left) == [pair for pair in parse(data) if pair[0] != key]  # type: ignore[attr-defined]
        at, kept = left.index(b"{") + 1, []
        for start, stop in members(left).values():
            assert start > at
            kept.append(left[at:stop].lstrip(b", \t\r\n"))
            at = stop
        assert kept == texts[:gone] + texts[gone + 1 :]


@given(made=objects(), data=st.data())
def test_members_removed_leave_the_others_as_they_were(
    made: tuple[bytes, dict[str, bytes], list[bytes]], data: st.DataObject
) -> None:
    """Several members are removed as one after the other would be; absent ones are ignored."""
    text, values, _ = made
    names = data.draw(st.sets(st.sampled_from([*values, "absent"])))
    expected = text
    for name in names:
        expected = remove_member(expected, name)
    left = remove_members(text, names)
    assert parse(left) == parse(expected)
    assert [take(left, span) for span in members(left).values()] == [
        value for name, value in values.items() if name not in names
    ]


@given(made=objects(), added=st.dictionaries(st.sampled_from(["new", "ü", 'q"']), VALUES, max_size=2))
def test_members_inserted_can_be_taken_out(
    made: tuple[bytes, dict[str, bytes], list[bytes]], added: dict[str, bytes]
) -> None:
    """The new members stand behind the others, in order; without them every byte is as it was."""
    data, values, _ = made
    longer = insert_members(data, added)
    assert [(key, take(longer, span)) for key, span in members(longer).items()] == [*values.items(), *added.items()]
    assert remove_members(longer, added) == data
    assert members(build_object(added)).keys() == added.keys()


@given(made=arrays())
def test_items_are_the_elements(made: tuple[bytes, list[bytes]]) -> None:
    data, items = made
    assert items_of(data.lstrip()) == items
    assert items_of(None) == items_of(b"{}") == items_of(b"1") == []


@given(made=arrays(), items=st.lists(VALUES, max_size=3), at_front=st.booleans())
def test_an_array_extended_keeps_its_elements(
    made: tuple[bytes, list[bytes]], items: list[bytes], at_front: bool
) -> None:
    """The new ones stand at the chosen end; the old ones keep every byte."""
    data, old = made
    longer = extend_array(data, iter(items), at_front=at_front)
    assert [longer[start:stop] for start, stop in elements(longer)] == (items + old if at_front else old + items)
    edge = data.index(b"[") + 1 if at_front else data.rindex(b"]")
    assert longer.startswith(data[:edge])
    assert longer.endswith(data[edge:])


# --- Depth ------------------------------------------------------------------------------------------------------------


def depth(data: bytes) -> int:
    """The number of frames below on the stack."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("levels", [0, 1, 5])
def test_a_check_leaves_room_for_a_deeper_stack(levels: int) -> None:
    before = depth(b"")
    assert deeper(depth, b"", levels) - before == levels + 1
    assert deeper(depth, b"") - before == DEPTH_SPARE + 1


@pytest.mark.parametrize(
    "text", [b"[" * 300 + b"}", b'["\\ud800",' + b"[" * 300 + b"}", b"{" * 300, b"[" * 300 + b"\xff"]
)
def test_broken_json_passes_the_depth_check(text: bytes) -> None:
    """The reader refuses it afterwards."""
    check_depth(text)


@pytest.mark.parametrize("beginning", [b"", b'"\\ud800",'])
def test_too_deep_nesting_is_refused(beginning: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="nested too deeply") as caught:
        check_depth(b"[" + beginning + b"[" * 100_000 + b"]" * 100_001)
    assert caught.value.rpc_code == PARSE_ERROR


@pytest.mark.parametrize(
    ("data", "key", "left"),
    [
        (b'{"a":1}', "a", b"{}"),
        (b'{ "a" : 1 }', "a", b"{ }"),
        (b'{"a":1,"b":2,"c":3}', "a", b'{"b":2,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', "b", b'{"a":1,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', "c", b'{"a":1,"b":2}'),
        (b'{"a":1}', "b", b'{"a":1}'),
    ],
)
def test_a_member_goes_with_one_comma(data: bytes, key: str, left: bytes) -> None:
    assert remove_member(data, key) == left
