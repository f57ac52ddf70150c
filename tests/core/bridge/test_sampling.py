"""Sampling messages and results, translated for each revision; bytes that need not change stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.revisions import features_of
from isthmus.core.bridge.sampling import blocks_of, older_answer, older_messages, uses_tools

OLD, AUDIO = features_of("2024-11-05"), features_of("2025-03-26")
TEXT = {"type": "text", "text": "a"}
SOUND = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": []}


def note(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def user_message(*blocks: Any) -> Any:
    """A message of the user, with one block or several."""
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 else list(blocks)}


@pytest.mark.parametrize(
    ("params", "uses"),
    [
        (None, False),
        ({}, False),
        ({"tools": []}, True),
        ({"tools": None}, False),
        ({"toolChoice": {}}, True),
        ({"toolChoice": None}, False),
        ({"tools": None, "toolChoice": {"mode": "auto"}}, True),
        ({"messages": [user_message(TEXT)]}, False),
        ({"messages": [user_message(TEXT), user_message(USE)]}, True),
        ({"messages": [user_message(TEXT, RESULT)]}, True),
        ({"messages": [user_message(note("tool_use"))]}, False),
        ({"messages": [{"role": "user"}]}, False),
        ({"messages": []}, False),
    ],
)
def test_requests_that_use_tools(params: dict[str, Any] | None, uses: bool) -> None:
    assert uses_tools(None if params is None else json.dumps(params).encode()) is uses


def test_a_type_may_be_escaped() -> None:
    assert uses_tools(b'{"messages":[{"role":"user","content":{"type":"t\\u006fol_use"}}]}')


@pytest.mark.parametrize(
    ("message", "blocks"),
    [
        (b'{"content":{"type":"text"}}', [b'{"type":"text"}']),
        (b'{"content":[{"a":1}, {"b":2}]}', [b'{"a":1}', b'{"b":2}']),
        (b'{"content":[]}', []),
        (b"{}", []),
    ],
)
def test_content_is_one_block_or_several(message: bytes, blocks: list[bytes]) -> None:
    assert blocks_of(message) == blocks


@pytest.mark.parametrize(
    ("messages", "old", "with_audio"),
    [
        ([user_message(TEXT)], [user_message(TEXT)], [user_message(TEXT)]),
        ([{"role": "user"}], [{"role": "user"}], [{"role": "user"}]),
        (
            [user_message(TEXT, IMAGE)],
            [user_message(TEXT), user_message(IMAGE)],
            [user_message(TEXT), user_message(IMAGE)],
        ),
        ([{"role": "user", "content": []}], [user_message(note(""))], [user_message(note(""))]),
        ([{"role": "user", "content": [TEXT]}], [user_message(TEXT)], [user_message(TEXT)]),
        ([user_message(SOUND)], [user_message(note("[audio, audio/wav]"))], [user_message(SOUND)]),
        (
            [user_message({"type": "audio"})],
            [user_message(note("[audio, of unknown type]"))],
            [user_message({"type": "audio"})],
        ),
        (
            [user_message(USE), user_message(TEXT, RESULT)],
            [user_message(note("[tool_use]")), user_message(TEXT), user_message(note("[tool_result]"))],
            None,
        ),
        (
            [user_message(TEXT), user_message(SOUND), user_message(IMAGE)],
            [user_message(TEXT), user_message(note("[audio, audio/wav]")), user_message(IMAGE)],
            None,
        ),
    ],
)
def test_messages_for_an_older_client(messages: list[Any], old: list[Any], with_audio: list[Any] | None) -> None:
    """An older client gets one block a message, of a kind that it knows; other messages stay."""
    params = json.dumps({"messages": messages, "maxTokens": 1}).encode()
    assert json.loads(older_messages(params, OLD)) == {"messages": old, "maxTokens": 1}
    if with_audio is not None:
        assert json.loads(older_messages(params, AUDIO)) == {"messages": with_audio, "maxTokens": 1}


@pytest.mark.parametrize(
    "params",
    [
        b'{ "messages":[ {"role":"user", "content":{"type":"text","text":"a"}} ,{"role":"user"} ], "maxTokens":1 }',
        b'{"messages":5}',
        b'{"messages": null}',
        b'{"maxTokens":1}',
        b'{ "messages" : [ ] }',
    ],
)
def test_readable_params_are_left_alone(params: bytes) -> None:
    """The bytes stay as they are."""
    assert older_messages(params, OLD) == params


def test_an_older_client_is_offered_no_tools() -> None:
    params = json.dumps({"messages": [], "tools": [{"name": "t"}], "maxTokens": 1, "toolChoice": {}}).encode()
    assert json.loads(older_messages(params, OLD)) == {"messages": [], "maxTokens": 1}


@pytest.mark.parametrize(
    ("blocks", "one"),
    [
        ([], note("")),
        ([TEXT], TEXT),
        ([IMAGE], IMAGE),
        ([SOUND], note("[audio, audio/wav]")),
        ([TEXT, note("b")], note("a\nb")),
        ([TEXT, note("b"), note("c")], note("a\nb\nc")),
        ([TEXT, IMAGE], note("a\n[image]")),
        ([IMAGE, TEXT], note("[image]\na")),
        ([IMAGE, {**IMAGE, "data": "BB=="}], IMAGE),
        ([USE, TEXT], note("[tool_use]\na")),
        ([TEXT, SOUND], note("a\n[audio, audio/wav]")),
        ([{"type": "text"}, TEXT], note("\na")),
    ],
)
def test_the_models_answer_is_one_block(blocks: list[Any], one: Any) -> None:
    """The block holds the texts, with notes for other blocks between them; an answer without text is its first
    block."""
    answer = {"role": "assistant", "model": "m", "content": blocks}
    found = json.loads(older_answer(json.dumps(answer).encode(), OLD))
    assert found == {"role": "assistant", "model": "m", "content": one}
    if len(blocks) == 1:
        bare = json.dumps({**answer, "content": blocks[0]}).encode()
        assert json.loads(older_answer(bare, OLD))["content"] == one


def test_known_blocks_get_no_note() -> None:
    answer = json.dumps({"content": [SOUND]}).encode()
    assert json.loads(older_answer(answer, AUDIO)) == {"content": SOUND}
