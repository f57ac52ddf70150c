"""Tests of the places of mentions: the place decides how the replacement is written, and how deep handles are searched
for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.plan import Deliver
from isthmus.core.files.calls.arguments import ArgumentProblem
from isthmus.core.files.calls.mentions import Mention, find_mentions, replacements
from isthmus.core.jsonrpc.splice import splice

SID, UID = "a" * 32, "b" * 32
UP = f"upload://sessions/{SID}/{UID}"
ODD = '/w/o\'n "q" \\.csv'
"""A path in which every way of quoting changes something else."""

SINGLE = "/w/o''n \"q\" \\.csv"
DOUBLE = '/w/o\'n ""q"" \\.csv'
CODE_SINGLE = '/w/o\\\'n "q" \\\\.csv'
CODE_DOUBLE = '/w/o\'n \\"q\\" \\\\.csv'


def found(params: bytes, *, limit: int = 64) -> list[Mention]:
    return find_mentions(params, limit=limit)


def params_of(arguments: object, **style: Any) -> bytes:
    return json.dumps({"name": "t", "arguments": arguments}, **style).encode()


def put(text: str, path: str = ODD) -> str:
    """The text of an argument after its handles were replaced."""
    params = params_of({"p": text})
    written = json.loads(
        splice(params, replacements([(mention, path) for mention in found(params)], lambda _: Deliver.PATH))
    )
    return str(written["arguments"]["p"])


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("see {}", ODD),
        ("f('{} x')", CODE_SINGLE),
        ("f('x {}')", CODE_SINGLE),
        ('f("{} x")', CODE_DOUBLE),
        ('f("x {}")', CODE_DOUBLE),
        ("f('x') + {} + f('y')", ODD),
        ("import a from '{}'", CODE_SINGLE),
        ("you may select '{}'", CODE_SINGLE),
        ("(Select a From '{}')", SINGLE),
        ('(select a from "{}")', DOUBLE),
        ('select "{}"', DOUBLE),
        ('select "a {} b"', DOUBLE),
        ("select 'a {} b'", SINGLE),
        ("select a from {} where b = 'c'", ODD),
        ("select 'a' || 'b', 'c {} d'", SINGLE),
        ("select a -- isn't {} it\nfrom b", ODD),
        ("select a -- isn't it\nfrom 'b {} c'", SINGLE),
        ("  \n insert into a values ('b {} c')", SINGLE),
    ],
)  # fmt: skip
def test_the_quotes_around_a_handle_decide_how_a_path_is_written(text: str, written: str) -> None:
    """The quote may be before the handle, behind it or further off, in SQL or in other code."""
    assert put(text.format(UP)) == text.format(written)


def test_several_handles_are_each_written_for_their_own_quotes() -> None:
    """The handles stand in one statement, and earlier ones do not affect later ones."""
    text = "select '{} x', \"{} y\", {}, 'z {} z' from '{}' -- {} 's"
    written = [SINGLE, DOUBLE, ODD, SINGLE, SINGLE, ODD]
    assert put(text.format(*[UP] * 6)) == text.format(*written)


@pytest.mark.parametrize("before", ["", "\u00e9\U0001f600 "])
def test_places_are_counted_in_bytes_whatever_stands_between(before: str) -> None:
    """The handles also stand in JSON within text, with escapes or without."""
    inner = {"a": f"{before}{UP} {before}{UP}", "b": [before, UP], before or "c": UP}
    for escapes in (True, False):
        for outside in (True, False):
            text = f" \t{json.dumps(inner, ensure_ascii=escapes)}\n"
            params = params_of({"p": [before, text, before], "q": before + UP}, ensure_ascii=outside)
            mentioned = found(params)
            assert len(mentioned) == 5
            for mention in mentioned:
                there = params[mention.start : mention.stop]
                assert there == UP.encode(), (escapes, outside)
            assert [mention.is_whole for mention in mentioned] == [False, False, True, True, not before]


@pytest.mark.parametrize("text", ['"%s"', ' ["%s"]', '{"a":"%s"}\n'])
def test_text_that_is_json_is_read_as_json(text: str) -> None:
    """A handle that is a whole string of that JSON is whole."""
    (mention,) = found(params_of({"p": text % UP}))
    assert (mention.is_whole, mention.quoting) == (True, ("json", "json"))


def test_text_is_read_as_json_four_times() -> None:
    """JSON below that depth is plain text, without labels."""
    value: object = {"k": UP}
    layers = []
    for _ in range(7):
        value = {"k": json.dumps(value)}
        (mention,) = found(params_of(value))
        layers.append((mention.label.count("k"), mention.quoting.count("json"), mention.is_whole))
    assert layers == [(2, 2, True), (3, 3, True), (4, 4, True), (5, 5, True), *[(5, 5, False)] * 3]


def test_sixty_four_levels_are_searched() -> None:
    """A handle one level deeper is refused."""
    assert len(found(params_of(json.loads("[" * 64 + f'"{UP}"' + "]" * 64)))) == 1
    with pytest.raises(ArgumentProblem, match="64 levels"):
        found(params_of(json.loads("[" * 65 + f'"{UP}"' + "]" * 65)))


def test_labels_and_keys_are_cut_to_two_hundred_characters() -> None:
    long = "k" * 150 + "l" * 150
    (one, two) = found(params_of({long: UP, "o": {long: [UP]}}))
    assert (one.label, one.key) == (long[:200], long[:200])
    assert (two.label, two.key) == (f"o.{long}"[:200], long[:200])


LONG = "sessions" + "x" * 80
"""A text that is long enough for a handle, but contains none."""


@pytest.mark.parametrize(
    "beside",
    [
        b'{"a":1,"a":"%b"}' % (b"y" * 200),
        b"[" * 70 + b'"%b"' % (b"y" * 200) + b"]" * 70,
        b'{"a":1,"a":2}',
    ],
    ids=["twice", "deep", "short"],
)
def test_a_part_that_cannot_contain_a_handle_is_not_checked(beside: bytes) -> None:
    """Duplicate members and deep nesting matter only where there may be a handle."""
    params = b'{"arguments":{"p":%b,"q":"%b"}}' % (beside, UP.encode())
    (mention,) = found(params)
    assert mention.label == "q"
    with pytest.raises(ArgumentProblem):
        found(b'{"arguments":{"p":{"a":1,"a":"%b"},"q":"%b"}}' % (LONG.encode(), UP.encode()))


@pytest.mark.parametrize("size", [27, 73, 74, 100])
def test_a_part_that_is_too_short_for_a_handle_is_not_parsed(size: int) -> None:
    """A place for a handle has at least two ids and the word between them."""
    twice = b'{"sessions":1,"sessions":2}'.replace(b"2}", b" " * (size - 27) + b"2}")
    params = b'{"arguments":{"p":%b,"q":"%b"}}' % (twice, UP.encode())
    if size <= 73:
        assert len(found(params)) == 1
    else:
        with pytest.raises(ArgumentProblem, match="twice"):
            found(params)


def test_a_handle_with_escaped_slashes_is_one_in_what_cannot_be_read_too() -> None:
    handle = UP.replace("/", "\\/").encode()
    with pytest.raises(ArgumentProblem, match="twice"):
        found(b'{"arguments":{"p":"%b","p":1}}' % handle)
