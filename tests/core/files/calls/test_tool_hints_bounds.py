"""Tests of the bounds of tool hints: how much of schemas and error results is read, and which words and places
count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.files.calls.tool_hints import read_hints, says_uri
from isthmus.core.state.tool_hints import Hints


def hints(schema: object, **more: object) -> Hints:
    return read_hints(json.dumps({"tools": [{"name": "t", "inputSchema": schema, **more}]}).encode())["t"]


def verdicts(properties: dict[str, Any], **more: object) -> dict[str, bool]:
    return dict(hints({"properties": properties}, **more).verdicts)


def string(**more: object) -> dict[str, object]:
    return {"type": "string", **more}


URI = string(format="uri")


# --- Evidence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uri", "uri-reference", "iri", "iri-reference", "url"])
def test_each_uri_format_wants_a_uri(name: str) -> None:
    assert verdicts({"p": string(format=name)}) == {"p": True}


@pytest.mark.parametrize("name", ["uris", "uri-template", "path", "URI", ""])
def test_other_formats_give_no_hint(name: str) -> None:
    assert verdicts({"p": string(format=name)}) == {}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf", "allOf"])
def test_each_kind_of_choice_is_looked_into(choice: str) -> None:
    assert verdicts({"p": {choice: [{"type": "null"}, URI]}}) == {"p": True}


def test_an_argument_with_any_uri_alternative_wants_a_uri() -> None:
    """A path beside it is an alternative. The description of the tool decides only where the schema does not."""
    path = string(description="a path")
    assert verdicts({"p": {"anyOf": [URI, path]}}) == {"p": True}
    assert verdicts({"p": {"anyOf": [path, URI]}}) == {"p": True}
    assert verdicts({"p": {"anyOf": [path, path]}}) == {"p": False}
    assert verdicts({"p": path, "q": {"type": "integer"}}, description="Takes file:// links") == {"p": False}
    assert verdicts({"p": string(), "q": {"type": "integer"}}, description="Takes file:// links") == {"p": True}


def test_an_invalid_schema_does_not_affect_others() -> None:
    """A schema that is too deep hides none either."""
    for odd in (True, None, 5, nested(9)["k"]):
        assert verdicts({"p": URI, "q": odd, "r": URI}) == {"p": True, "r": True}


def test_unreadable_parts_give_no_hints() -> None:
    """The rest of the enclosing object is read."""
    half = b'{"a":"\\ud800","readOnlyHint":true,"properties":{"p":{"format":"uri"}}}'
    page = b'{"tools":[{"name":"a","annotations":%b,"outputSchema":%b,"inputSchema":%b}]}' % (half, half, half)
    assert read_hints(page) == {"a": Hints(output_schema=half)}


def test_a_tool_without_evidence_has_the_default_hints() -> None:
    assert Hints() == Hints(is_harmless=False, output_schema=None, verdicts={}) == hints({})


# --- Bounds -----------------------------------------------------------------------------------------------------------


def nested(levels: int, innermost: object = URI) -> dict[str, Any]:
    """An argument that lies so many levels below the schema."""
    schema: Any = innermost
    for _ in range(levels - 1):
        schema = {"properties": {"k": schema}}
    return {"k": schema}


def test_eight_levels_are_read() -> None:
    assert verdicts(nested(8)) == {".".join("k" * 8): True}
    assert verdicts(nested(9)) == {}


def test_labels_that_are_longer_than_two_hundred_characters_are_left_out() -> None:
    """A member with an empty name is left out too, with all below it."""
    assert verdicts({"k" * 200: URI, "l" * 201: URI}) == {"k" * 200: True}
    assert verdicts({"o": {"properties": {"k" * 198: URI, "l" * 199: URI}}}) == {"o." + "k" * 198: True}
    assert verdicts({"": {"properties": {"p": URI}}, "q": {"properties": {"": URI}}, "r": URI}) == {"r": True}


def test_a_thousand_schemas_are_read() -> None:
    """The tool's own schema is one of them."""
    assert len(verdicts({f"p{n}": URI for n in range(2000)})) == 999
    assert len(verdicts({f"p{n}": URI for n in range(999)})) == 999


def test_no_more_than_a_thousand_schemas_are_queued() -> None:
    """The first ones are read, and the rest is left out."""
    last = {"properties": {f"q{n}": URI for n in range(600)}}
    found = verdicts({**{f"p{n}": URI for n in range(599)}, "o": last})
    assert {label for label in found if label.startswith("o.")} == {f"o.q{n}" for n in range(401)}
    assert len(found) == 998


def test_sixteen_kibi_characters_of_a_text_are_read() -> None:
    size = 16 * 1024
    for about, says in (("x" * (size - 4) + " URI", True), ("x" * (size - 3) + " URI", False)):
        assert (verdicts({"p": string(description=about)}) == {"p": True}) is says
        assert says_uri(refusal(about), ["x"]) is says
    for about, says in (("x" * (size - 7) + " file:/", True), ("x" * (size - 6) + " file:/", False)):
        assert (verdicts({"p": string()}, description=about) == {"p": True}) is says


# --- Refusals ---------------------------------------------------------------------------------------------------------


def refusal(*texts: str) -> bytes:
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps({"content": content, "isError": True}).encode()


def test_each_block_of_an_error_is_read_by_itself() -> None:
    """A word does not continue in the next block."""
    assert says_uri(refusal("Cannot open '/w/a'", "URI expected"), ["/w/a"])
    assert says_uri(refusal("It needs a URI", "not '/w/a'"), ["/w/a"])
    assert not says_uri(refusal("Cannot open '/w/a' with my-", "re-URI-ng"), ["/w/a"])


def test_sixteen_blocks_of_an_error_are_read() -> None:
    text = "/w/a is no URI"
    assert says_uri(refusal(*[""] * 15, text), ["/w/a"])
    assert not says_uri(refusal(*[""] * 16, text), ["/w/a"])


@pytest.mark.parametrize("reason", ["unsupported", "not supported", "unknown url type", "Without a base"])
def test_some_errors_are_recognized_without_the_path(reason: str) -> None:
    assert says_uri(refusal(f"This URL is refused: {reason}"), ["/w/a"])
    assert not says_uri(refusal("This URL is refused"), ["/w/a"])


def test_a_path_that_contains_the_word_gives_no_hint() -> None:
    """An empty path gives no hint either."""
    assert not says_uri(refusal("/w/a URI b: no such file, unsupported"), ["/w/a URI b"])
    assert says_uri(refusal("/w/a: a URI is wanted"), ["", "/w/a"])
    assert not says_uri(refusal("a URI is wanted"), [""])
