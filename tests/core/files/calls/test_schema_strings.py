"""Tests of the rules for strings in a schema: each assertion on both sides of its bound."""

from __future__ import annotations

import json

import pytest
from each_row import each_row
from isthmus.core.files.calls import schema_strings
from isthmus.core.files.calls.schema_strings import Path, StringRules


def allows(schema: object, value: object = "a", path: Path = (), *, new: str = "abc") -> bool:
    """True if the string at `path` may become `new`."""
    old = value
    for step in path:
        old = old[step]  # type: ignore[index]
    assert isinstance(old, str)
    return StringRules(json.dumps(schema).encode(), value, lambda text: new if text == old else text).allow(path, old)


@each_row(
    ("schema", "new", "is_allowed"),
    [
        ({"contentEncoding": "base64"}, "abc", False),
        ({"const": "a"}, "abc", False),
        ({"const": "abc"}, "abc", False),
        ({"const": "b"}, "abc", True),
        ({"enum": ["a", "b"]}, "abc", False),
        ({"enum": ["abc", "b"]}, "abc", False),
        ({"enum": ["a", "abc"]}, "abc", True),
        ({"enum": ["b"]}, "abc", True),
        ({"enum": {"a": "abc"}}, "abc", True),  # no list, so it applies to neither
        ({"minLength": 1}, "abc", True),
        ({"minLength": 2}, "abc", False),
        ({"minLength": 3}, "abc", False),
        ({"minLength": 4}, "abc", True),
        ({"minLength": 1}, "", False),
        ({"minLength": 1.5}, "abc", False),
        ({"minLength": "1"}, "abc", False),
        ({"maxLength": 3}, "abc", True),
        ({"maxLength": 2}, "abc", False),
        ({"maxLength": 1}, "abc", False),
        ({"maxLength": 0}, "abc", True),
        ({"maxLength": 0}, "", False),
        ({"maxLength": 2.5}, "abc", False),
        ({"maxLength": 2.5}, "ab", True),
        ({"maxLength": None}, "abc", False),
        ({"format": "uri"}, "b c", True),  # neither is one
        ({"format": "uri"}, "file:b", False),
        ({"format": "path"}, "x\n", True),
        ({"format": "date"}, "abc", False),
        ({"format": ["uri"]}, "abc", False),
        ({"pattern": "a"}, "abc", True),
        ({"pattern": "^a$"}, "abc", False),
        ({"pattern": "b"}, "abc", False),
        ({"pattern": "c"}, "xy", True),
        ({"pattern": 1}, "abc", False),
    ],
)
def test_an_assertion_must_accept_both_strings_or_neither(schema: object, new: str, is_allowed: bool) -> None:
    assert allows(schema, new=new) is is_allowed


@each_row(
    ("pattern", "text", "found"),
    [
        ("a", "bab", True),
        ("^a", "bab", False),
        ("a$", "ba", True),
        ("a$", "ab", False),
        (r"a\$", "a$", True),
        (r"a\$", "a", False),
        ("^a+b*$", "aab", True),
        ("^a+b*c?$", "aab", None),  # three repetitions
        ("a+b", "aab", True),
        ("a+b*", "aab", None),
        ("a{2}", "aa", True),
        ("[a-c]x", "bx", True),
        ("[^a-c]x", "bx", False),
        ("[z-a]", "b", None),
        ("(a)", "a", None),
        ("a|b", "a", None),
        (r"\bx", "x", None),
        ("a", "a\n", None),
        ("a", "a\r", None),
        ("a", "ä", None),
        ("ä", "a", None),
        (1, "a", None),
        ("a" * 256, "a" * 256, True),
        ("a" * 257, "a", None),
        ("a", "a" * 1024, True),
        ("a", "a" * 1025, None),
        ("", "a", True),
    ],
)
def test_a_pattern_is_judged_where_all_dialects_agree(pattern: object, text: str, found: bool | None) -> None:
    assert schema_strings._matches(pattern, text) is found


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", "root"),
        ("#/$defs/a", 1),
        ("#/$defs/b~1c", 2),
        ("#/$defs/b~0c", 3),
        ("#/$defs/d%20e", 4),
        ("#/allOf/0", 5),
        ("#/allOf/1", 6),
        ("#/allOf/2", None),
        ("#/allOf/-1", None),
        ("#/allOf/0000001", None),
        ("#/allOf/x", None),
        ("#/$defs/none", None),
        ("#/$defs/own/x", None),  # references in it count from itself
        ("#/$defs/own", {"$id": "u", "x": 7}),
        ("#/$defs/old/x", None),
        ("#/$defs/a/x", None),
        ("#a", None),
        ("http://h/#/x", None),
        (1, None),
    ],
)
def test_a_reference_within_the_schema_is_followed(reference: object, target: object) -> None:
    own = {"own": {"$id": "u", "x": 7}, "old": {"id": "u", "x": 7}}
    root: dict[str, object] = {"$id": "r", "$defs": {"a": 1, "b/c": 2, "b~c": 3, "d e": 4, **own}, "allOf": [5, 6]}
    assert schema_strings._resolved(root, reference) == (root if target == "root" else target)


TIGHT = {"maxLength": 1}


@each_row(
    ("schema", "is_allowed"),
    [
        (True, True),
        (False, True),
        (1, False),
        (None, False),
        ({}, True),
        *(({key: [{}, TIGHT]}, False) for key in ("allOf", "anyOf", "oneOf")),
        *(({key: [{}, True]}, True) for key in ("allOf", "anyOf", "oneOf")),
        *(({key: {}}, False) for key in ("allOf", "anyOf", "oneOf")),  # it should be a list
        *(({key: TIGHT}, False) for key in ("not", "if", "then", "else")),
        *(({key: {}}, True) for key in ("not", "if", "then", "else")),
        *(({key: "#"}, False) for key in ("$dynamicRef", "$recursiveRef", "extends", "disallow")),
        *(({key: {"x": TIGHT}}, False) for key in ("dependentSchemas", "dependencies")),
        *(({key: {"x": ["y"]}}, True) for key in ("dependentSchemas", "dependencies")),
        *(({key: ["y"]}, True) for key in ("dependentSchemas", "dependencies")),
        ({"$ref": "#/$defs/t", "$defs": {"t": TIGHT}}, False),
        ({"$ref": "#/$defs/t", "$defs": {"t": {}}}, True),
        ({"$ref": "#/$defs/u"}, False),
        ({"$ref": "#"}, True),
        ({"$id": "r"}, True),
        ({"allOf": [{"$id": "r"}]}, False),
        ({"allOf": [{"id": "r"}]}, False),
        ({"allOf": [{"id": 1}]}, True),
        ({"allOf": [{"allOf": [True, {"not": TIGHT}]}]}, False),
        ({"allOf": [1, {}]}, False),
    ],
)
def test_each_subschema_of_the_same_place_counts(schema: object, is_allowed: bool) -> None:
    assert allows(schema) is is_allowed


@pytest.mark.parametrize(
    ("schema", "is_allowed"),
    [
        ({"properties": {"p": TIGHT}}, False),
        ({"properties": {"q": TIGHT}}, True),
        ({"properties": {"p": {}}, "additionalProperties": TIGHT}, True),
        ({"properties": {"q": {}}, "additionalProperties": TIGHT}, False),
        ({"additionalProperties": TIGHT}, False),
        ({"properties": ["p"]}, True),
        ({"patternProperties": {"z": TIGHT}}, False),  # whether it applies is not examined
        ({"properties": {"p": {}}, "patternProperties": {"z": TIGHT}}, False),
        ({"unevaluatedProperties": TIGHT}, False),
        ({"properties": {"p": {}}, "unevaluatedProperties": TIGHT}, False),
        ({"items": TIGHT}, True),
        ({"const": {"p": "a"}}, False),
        ({"const": ["a"]}, False),
        ({"const": "a"}, True),
        ({"enum": [1, {"p": "a"}]}, False),
        ({"enum": ["a", 1]}, True),
        ({"uniqueItems": True}, True),
        ({"maxLength": 1}, True),
        ({"$ref": "#/$defs/u"}, False),
        ({"properties": {"p": {"$ref": "#/$defs/u"}}}, False),
    ],
)
def test_a_member_is_judged_by_what_could_apply_to_it(schema: object, is_allowed: bool) -> None:
    assert allows(schema, {"p": "a"}, ("p",)) is is_allowed


@pytest.mark.parametrize(
    ("schema", "is_allowed"),
    [
        *(({key: TIGHT}, False) for key in ("items", "additionalItems", "contains", "unevaluatedItems")),
        *(({key: [{}, TIGHT, {}]}, False) for key in ("items", "prefixItems")),
        *(({key: [TIGHT, {}, TIGHT]}, True) for key in ("items", "prefixItems")),
        *(({key: [TIGHT]}, True) for key in ("items", "prefixItems")),
        ({"properties": {"1": TIGHT}, "additionalProperties": TIGHT}, True),
        ({"const": ["x", "a"]}, False),
        ({"uniqueItems": True}, True),
    ],
)
def test_an_item_is_judged_by_what_could_apply_to_it(schema: object, is_allowed: bool) -> None:
    assert allows(schema, ["x", "a", "y"], (1,)) is is_allowed


@pytest.mark.parametrize(
    ("schema", "items", "is_allowed"),
    [
        ({"uniqueItems": True}, ["a", "b"], True),
        ({"uniqueItems": True}, ["a", "a"], True),  # they become equal, and were equal before
        ({"uniqueItems": True}, ["a", "abc"], False),
        ({"uniqueItems": False}, ["a", "abc"], True),
        ({"uniqueItems": True}, ["a", 1, None], True),
        ({"uniqueItems": 1}, ["a", "abc"], False),
    ],
)
def test_items_that_must_differ_still_do(schema: object, items: list[object], is_allowed: bool) -> None:
    assert allows(schema, items, (0,)) is is_allowed


def test_another_item_may_become_the_same() -> None:
    rules = StringRules(b'{"uniqueItems":true}', ["a", "b"], lambda text: "c")
    assert not rules.allow((0,), "a")
    assert not rules.allow((1,), "b")


def test_below_items_that_must_differ_nothing_changes() -> None:
    """The proxy does not examine whether objects stay different."""
    schema = {"properties": {"l": {"uniqueItems": True}}}
    assert not allows(schema, {"l": [{"p": "a"}]}, ("l", 0, "p"))
    assert not allows(schema, {"l": [["a"]]}, ("l", 0, 0))
    assert allows(schema, {"l": ["a"]}, ("l", 0))
    assert allows({"uniqueItems": True}, {"l": ["a", "abc"]}, ("l", 0))
    assert allows({"uniqueItems": True}, {"l": {"p": "a"}}, ("l", "p"))


def test_lists_of_one_value_are_independent() -> None:
    rules = StringRules(
        b'{"additionalProperties":{"uniqueItems":true}}', {"l": ["a", "b"], "m": ["c", "d"]}, lambda text: text + "d"
    )
    assert rules.allow(("l", 0), "a")
    assert rules.allow(("m", 0), "c")
    assert rules.allow(("m", 1), "d")


def test_without_a_schema_everything_may_change() -> None:
    assert StringRules(None, "a", lambda text: "b").allow((), "a")


@pytest.mark.parametrize("schema", [b"{", b"", b"[" * 100_000])
def test_with_an_unreadable_schema_nothing_may_change(schema: bytes) -> None:
    assert not StringRules(schema, "a", lambda text: "b").allow((), "a")


@pytest.mark.parametrize(
    ("schema", "value", "path", "steps"),
    [
        ({"allOf": [{}, {}, {}]}, "a", (), 4),
        (
            {"properties": {"p": {}}},
            {"p": "a"},
            ("p",),
            3,
        ),  # the schema, that of `p`, and the one for other members
        ({"properties": {"p": {"allOf": [{}, {}]}}}, {"p": "a"}, ("p",), 5),
    ],
)
def test_the_number_of_examined_subschemas_is_bounded(
    schema: object, value: object, path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_strings, "STEPS_MAX", steps)
    assert allows(schema, value, path)
    monkeypatch.setattr(schema_strings, "STEPS_MAX", steps - 2)
    assert not allows(schema, value, path)


@pytest.mark.parametrize(
    ("assertion", "work"),
    [
        ({"pattern": "a.*d"}, 4 * (schema_strings._COMPILE_WORK + 1) + 4 * (schema_strings._COMPILE_WORK + 3**2)),
        ({"format": "path"}, schema_strings._FORMAT_WORK * (1 + 3)),
        ({"enum": ["x", "y"]}, 2 * 2 * schema_strings._ENTRY_WORK),
    ],
)
def test_the_work_of_comparing_the_strings_of_a_value_is_bounded(
    assertion: object, work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two strings is compared if there is work left for it."""
    value = ["a", "a"]
    for bound, allowed in ((2 * work + 1, [True, True]), (2 * work, [True, False])):
        monkeypatch.setattr(schema_strings, "WORK_MAX", bound)
        rules = StringRules(json.dumps({"items": assertion}).encode(), value, lambda text: "abc")
        assert [rules.allow((i,), "a") for i in range(2)] == allowed


@pytest.mark.parametrize(
    ("name", "fits", "fails"),
    [
        ("uri", ("a:", "http://h/p?q#f", "A1+.-:x", "a:%41"), ("", "a", ":x", "1:x", "a:b c", "a:%4", "a:ä", "a:#x#y")),
        ("url", ("a:", "http://h/p?q#f"), ("", "a", "a:b c", "a:ä")),
        ("iri", ("a:", "http://h/ä"), ("", "a", "ä", "a:b c")),
        ("uri-reference", ("", "a", "/p?q#f", "a:b", "%41"), ("b c", "ä", "#x#y", "%4")),
        ("iri-reference", ("", "a", "ä", "/p?q#f"), ("b c", "#x#y")),
        ("path", ("", "a", "b c", "ä\n", "in/FAQ"), ()),
        ("file-path", ("", "a", "b c", "ä\n", "in/FAQ"), ()),
    ],
)
def test_a_known_format_must_hold_for_both_strings_or_neither(
    name: str, fits: tuple[str, ...], fails: tuple[str, ...]
) -> None:
    """A string of a known format may become any other of that format, and none without it."""
    schema = {"format": name}
    for before in (*fits, *fails):
        for after in (*fits, *fails):
            expected = (before in fits) is (after in fits)
            assert allows(schema, before, new=after) is expected, (before, after)


@pytest.mark.parametrize("name", ["uriQ", "URI", "date-time", "email", "", "regex"])
def test_an_unknown_format_allows_no_change(name: str) -> None:
    assert not allows({"format": name}, "a", new="b")
