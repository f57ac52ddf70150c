"""Tests of what a server asks a person: forms, and pages to open."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from isthmus.app.trying.questions import answer_elicitation

FORM: dict[str, Any] = {
    "message": "Book it?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name"},
            "nights": {"type": "integer", "default": 1},
            "room": {"oneOf": [{"const": "s", "title": "Single"}, {"const": "d", "title": "Double"}]},
            "extras": {"type": "array", "items": {"enum": ["tea", "bed"]}},
        },
        "required": ["name", "room"],
    },
}
PAGE = {"mode": "url", "message": "Pay", "url": "https://pay.example/1", "elicitationId": "1"}


def answered(params: dict[str, Any], *entered: str | None) -> tuple[dict[str, Any], list[str]]:
    """Returns the answer, and what was shown, prompts included."""
    shown: list[str] = []
    lines = list(entered)

    async def ask(prompt: str) -> str | None:
        shown.append(prompt)
        return lines.pop(0)

    answer = anyio.run(answer_elicitation, "hotel", params, ask, shown.append)
    assert not lines
    return json.loads(answer), shown


def test_a_form_is_asked_field_by_field_with_its_types() -> None:
    answer, shown = answered(FORM, "Ann", "x", "s", "", "tea, bed")
    content = {"name": "Ann", "room": "s", "nights": 1, "extras": ["tea", "bed"]}
    assert answer == {"action": "accept", "content": content}
    assert shown[0] == "hotel asks: Book it?"
    assert "  Your name\n  name (string, required): " in shown
    assert "  room (one of s (Single), d (Double), required): " in shown
    assert "  nights (integer) [1]: " in shown
    assert "  got 'x', expected one of s (Single), d (Double)" in shown


@pytest.mark.parametrize("entered", [(None,), ("Ann", "", "s", None)])
def test_the_end_of_input_declines_a_form(entered: tuple[str | None, ...]) -> None:
    assert answered(FORM, *entered)[0] == {"action": "decline"}


def test_what_is_left_empty_is_left_out_or_asked_again() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["b"]}
    answer, shown = answered({"message": "", "requestedSchema": schema}, "", "4", "")
    assert answer == {"action": "accept", "content": {"b": 4}}
    assert "  got nothing, expected integer" in shown


@pytest.mark.parametrize(
    ("params", "entered", "answer"),
    [
        (PAGE, "", {"action": "accept"}),
        (PAGE, None, {"action": "decline"}),
        ({"message": "Sure?"}, "", {"action": "accept", "content": {}}),
        ({"message": "Sure?"}, None, {"action": "decline"}),
    ],
)
def test_a_page_and_a_bare_question_are_accepted_by_enter(
    params: dict[str, Any], entered: str | None, answer: dict[str, Any]
) -> None:
    found, shown = answered(params, entered)
    assert found == answer
    assert any(PAGE["url"] in line for line in shown) == (params is PAGE)
