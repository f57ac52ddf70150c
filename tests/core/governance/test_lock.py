"""Tests of canonical definitions and of the lock."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.governance import Pinned
from isthmus.core.governance.canonical import KEYS, PINNED, TEXTS, canonical, changed_members, digest, pinned
from isthmus.core.governance.lock import LockError, format_lock, in_order, parse_lock

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["", "'''", '"""', "\\", "a \nb\t\n", "\r\n", "\u2028", "\x00\x7f", "'", '"', "\U000e0041", "é\u200b", '""\n"']
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A kind, and an entry of its list."""
    kind = draw(st.sampled_from(list(KEYS)))
    names = draw(st.lists(st.sampled_from(PINNED[kind]), unique=True))
    entry = {name: draw(TEXT if name in TEXTS else VALUES) for name in names}
    return kind, {KEYS[kind]: draw(TEXT), **entry}


LOCKS = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,5}", fullmatch=True) | st.sampled_from(["a.b", "version"]),
    st.lists(entries(), max_size=4, unique_by=lambda one: (one[0], one[1][KEYS[one[0]]])),
    max_size=3,
)


def definition(kind: str, entry: Any) -> Pinned:
    return pinned(kind, json.dumps(entry).encode())


@given(LOCKS)
def test_a_lock_is_read_as_it_was_written(made: dict[str, list[tuple[str, dict[str, Any]]]]) -> None:
    lock = {id: in_order(definition(*one) for one in listed) for id, listed in made.items()}
    text = format_lock(lock)
    assert parse_lock(text) == lock
    # Nothing that is not seen stands in it, and no editor that strips the ends of lines changes it.
    assert all(char.isprintable() or char == "\n" for char in text)
    assert parse_lock("\n".join(line.rstrip() for line in text.split("\n"))) == lock


@given(LOCKS, st.randoms(use_true_random=False))
def test_the_order_depends_on_the_names_alone(made: dict[str, list[Any]], rng: random.Random) -> None:
    lock = {id: tuple(definition(*one) for one in listed) for id, listed in made.items()}
    shuffled = list(lock.items())
    rng.shuffle(shuffled)
    other = {id: tuple(rng.sample(listed, len(listed))) for id, listed in shuffled}
    assert format_lock(lock) == format_lock(other)


@given(entries(), st.randoms(use_true_random=False))
def test_a_definition_does_not_depend_on_how_it_is_written(
    made: tuple[str, dict[str, Any]], rng: random.Random
) -> None:
    kind, entry = made

    def otherwise(value: Any) -> Any:
        if isinstance(value, dict):
            pairs = [(key, otherwise(one)) for key, one in value.items()]
            rng.shuffle(pairs)
            return dict(pairs)
        return [otherwise(one) for one in value] if isinstance(value, list) else value

    written = json.dumps(otherwise(entry), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2])).encode()
    one = pinned(kind, written)
    assert one == definition(kind, entry)
    assert digest(one) == digest(definition(kind, entry))


@given(entries(), st.data())
def test_every_change_of_a_pinned_member_is_found(made: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    kind, entry = made
    member = data.draw(st.sampled_from(PINNED[kind]))
    value = data.draw(TEXT if member in TEXTS else VALUES.filter(lambda one: one is not None))
    before, now = definition(kind, entry), definition(kind, {**entry, member: value})
    old = dict(before.members).get(member)
    expected = (member,) if old != canonical(json.dumps(value).encode()) else ()
    assert changed_members(before, now) == expected
    assert changed_members(before, now, (member,)) == ()
    assert (digest(before) == digest(now)) == (not expected)


@pytest.mark.parametrize(
    "entry",
    [
        b'{"name":"a","name":"b"}',
        b'{"name":"a","Name":"b"}',
        b'{"Name":"a"}',
        b'{"name":1}',
        b'{"name":null}',
        b'{"name":"a","description":5}',
        b'{"name":"a","description":"x","DESCRIPTION":"y"}',
        b'{"name":"a","inputSchema":{"x":1,"x":2}}',
        b'{"name":"a","inputSchema":1e999}',
        b'{"name":"a","inputSchema":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"name":"a","inputSchema":' + b"9" * 5000 + b"}",
        b"[]",
        b'"a"',
        b"{",
    ],
)
def test_a_definition_that_can_be_read_in_two_ways_has_no_canonical_form(entry: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        pinned("tools", entry)


def test_null_counts_as_absent_and_halves_of_surrogates_as_unknown() -> None:
    assert pinned("tools", b'{"name":"a","title":null}') == Pinned("tools", "a")
    assert pinned("tools", rb'{"name":"a\ud800"}') == Pinned("tools", "a\ufffd")


GOOD = format_lock({"a": (definition("tools", {"name": "t", "description": "Does.", "inputSchema": {"a": 1}}),)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got the version None, expected 1"),
        ("version = true", "got the version True"),
        ("version = 2", "got the version 2"),
        ("x = [", "no TOML"),
        ("x = " + "[" * 5000, "no TOML"),
        ("version = 1\nother = 1", "got other, expected version and servers"),
        ("version = 1\nservers = 1", "servers that are no table"),
        ("version = 1\n[servers.a.cats.b]", "got servers.a.cats, expected tools"),
        ("version = 1\nservers.a.tools = 1", "got a servers.a.tools that is no table"),
        (GOOD.replace("Does", "Dots"), "sha256 that is not of its texts"),
        (GOOD.replace('sha256 = "', 'sha256 = "0'), "sha256 that is not of its texts"),
        (GOOD.replace("description", "descriptor"), "got servers.a.tools.t.descriptor, expected sha256, title"),
        (GOOD.replace('"Does."', "5"), "got a servers.a.tools.t.description that is no text"),
        (GOOD.replace("{", "["), "servers.a.tools.t.inputSchema: got a definition with JSON that cannot be read"),
        (GOOD + GOOD.partition("version = 1\n")[2], "no TOML"),  # both sides of a merge were kept
        (GOOD.replace("[servers", "<<<<<<< HEAD\n[servers"), "no TOML"),
    ],
)
def test_a_corrupt_lock_is_refused_as_a_whole(text: str, said: str) -> None:
    assert text != GOOD
    with pytest.raises(LockError, match=said.replace(".", r"\.")):
        parse_lock(text)


@given(st.data())
def test_a_lock_of_which_a_part_is_missing_is_refused_or_has_less_in_it(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    stop = data.draw(st.integers(start, len(GOOD)))
    whole = parse_lock(GOOD)
    try:
        read = parse_lock(GOOD[:start] + GOOD[stop:])
    except LockError:
        return
    found = {(one.kind, digest(one)) for listed in read.values() for one in listed}
    for listed in read.values():
        for one in listed:
            assert (one.kind, digest(one)) in found
            known = next((known for known in whole["a"] if known.name == one.name), None)
            assert known is None or known == one  # an approved name never has other texts


def test_an_empty_server_is_pinned_too() -> None:
    assert parse_lock(format_lock({"a": ()})) == {"a": ()}
