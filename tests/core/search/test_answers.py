"""Tests of the meta-tools: their definitions, and what a search answers."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from isthmus.core.base.revisions import LEGACY, MODERN, Features
from isthmus.core.search.answers import (
    CALL_READ_ONLY_TOOL,
    CALL_TOOL,
    DEFINITION_MAX_BYTES,
    DEFINITIONS_MAX,
    DEFINITIONS_MAX_BYTES,
    HITS_USUAL,
    LINE_MAX_CHARS,
    SEARCH_TOOLS,
    answer_search,
    definitions,
)
from isthmus.core.search.index import HITS_MAX, Index
from tool_catalogue import entry, filled

SERVERS = {"git": "Repositories and branches", "mail": "Messages"}
LATEST = LEGACY["2025-11-25"]


def ask(index: Index, features: Features = LATEST, /, *, allowed: Any = None, **arguments: Any) -> dict[str, Any]:
    data = json.dumps(arguments).encode()
    result: dict[str, Any] = json.loads(answer_search(index, data, SERVERS, features, allowed=allowed))
    return result


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    return str(block["text"])


def branches(count: int, size: int = 0) -> Index:
    return filled(
        entry(f"git__branch_{chr(97 + at // 26)}{chr(97 + at % 26)}", "Branch. -" + "-" * size) for at in range(count)
    )


def test_the_definitions_of_the_meta_tools() -> None:
    tools = [json.loads(tool) for tool in definitions(SERVERS, has_read_only=True)]
    assert [tool["name"] for tool in tools] == [SEARCH_TOOLS, CALL_TOOL, CALL_READ_ONLY_TOOL]
    assert [tool["annotations"]["readOnlyHint"] for tool in tools] == [True, False, True]
    assert "git, mail" in tools[0]["description"] and "synonyms" in tools[0]["description"]
    assert tools[0]["inputSchema"]["properties"]["limit"]["default"] == HITS_USUAL
    assert tools[0]["inputSchema"]["properties"]["limit"]["maximum"] == HITS_MAX
    assert tools[1]["inputSchema"] == tools[2]["inputSchema"]
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
    assert definitions(SERVERS) == definitions(SERVERS, has_read_only=True)[:2]
    assert len(b"".join(definitions(SERVERS, has_read_only=True))) < 2500


def test_hits_are_shown_with_their_definition_and_others_in_a_line() -> None:
    index = branches(9)
    result = ask(index, query="branch")
    found = [hit.definition for hit in index.search("branch", limit=HITS_USUAL).hits]
    structured = result["structuredContent"]
    assert structured["tools"] == [json.loads(each) for each in found[:DEFINITIONS_MAX]]
    assert structured["more"] == [
        {"name": json.loads(each)["name"], "description": "Branch"} for each in found[DEFINITIONS_MAX:]
    ]
    assert structured["next_offset"] == HITS_USUAL
    text = text_of(result)
    assert all(each.decode() in text for each in found[:DEFINITIONS_MAX])
    assert "- git__branch_ah: Branch\n" in text and "offset 8" in text
    rest = ask(index, query="branch", offset=HITS_USUAL)
    assert [tool["name"] for tool in rest["structuredContent"]["tools"]] == ["git__branch_ai"]
    assert "next_offset" not in rest["structuredContent"]
    assert "isError" not in rest


@pytest.mark.parametrize("features", [*LEGACY.values(), *MODERN.values()], ids=lambda each: each.revision)
def test_structured_content_is_for_revisions_that_have_it(features: Features) -> None:
    result = ask(branches(1), features, query="branch")
    assert ("structuredContent" in result) == (features.revision >= "2025-06-18")
    assert "git__branch_aa" in text_of(result)


def test_definitions_take_so_many_bytes_together() -> None:
    """A definition that does not fit gets a line, and a smaller one behind it may fit."""
    half = DEFINITIONS_MAX_BYTES // 2
    shown = ask(branches(4, half - 200), query="branch")["structuredContent"]
    assert [len(shown["tools"]), len(shown["more"])] == [2, 2]
    shown = ask(branches(4, half + 200), query="branch")["structuredContent"]
    assert [len(shown["tools"]), len(shown["more"])] == [1, 3]


def test_the_first_definition_may_be_larger() -> None:
    shown = ask(branches(2, DEFINITION_MAX_BYTES - 200), query="branch")["structuredContent"]
    assert [len(shown["tools"]), len(shown["more"])] == [1, 1]
    shown = ask(branches(1, DEFINITION_MAX_BYTES), query="branch")["structuredContent"]
    assert [len(shown["tools"]), len(shown["more"])] == [0, 1]


def test_an_empty_query_lists_names_alone() -> None:
    shown = ask(branches(60), query="", limit=50)["structuredContent"]
    assert shown["tools"] == []
    assert len(shown["more"]) == 50
    assert shown["next_offset"] == 50


def test_nothing_found_says_which_servers_there_are_and_how_to_ask_again() -> None:
    result = ask(branches(1), query="xylophone")
    assert "isError" not in result
    assert result["structuredContent"] == {"tools": [], "more": [], "servers": SERVERS}
    text = text_of(result)
    assert "'xylophone'" in text and "- git: Repositories and branches\n- mail: Messages" in text
    assert "Ask again" in text


def test_an_offset_behind_the_last_hit_finds_no_fault_with_the_words() -> None:
    result = ask(branches(1), query="branch", offset=5)
    assert text_of(result) == "There are no further tools."


def test_lines_are_cut_off() -> None:
    index = filled([entry("git__x", "word " * 100)])
    assert len(ask(index, query="")["structuredContent"]["more"][0]["description"]) == LINE_MAX_CHARS
    long = "z" * 10_000
    assert len(text_of(ask(index, query=long))) < 3 * LINE_MAX_CHARS + 200


def test_tools_that_are_not_allowed_are_not_mentioned() -> None:
    index = filled([entry("git__branch"), entry("git__secret_branch")])
    for query in ("branch", "", "git__secret_branch", "secret branch"):
        result = ask(index, query=query, allowed=lambda name: "secret" not in name)
        assert "git__secret" not in json.dumps(result["structuredContent"])


def test_a_server_restricts_the_search() -> None:
    index = filled([entry("git__send"), entry("mail__send")])
    assert [tool["name"] for tool in ask(index, query="send", server="mail")["structuredContent"]["tools"]] == [
        "mail__send"
    ]
    refused = ask(index, query="send", server="nobody")
    assert refused["isError"] is True
    assert "'nobody'" in text_of(refused) and "- git" in text_of(refused)


def test_numbers_may_be_texts_and_members_null() -> None:
    index = branches(3)
    shown = ask(index, query="branch", limit="1", offset=None, server=None)["structuredContent"]
    assert [len(shown["tools"]), shown["next_offset"]] == [1, 1]


@pytest.mark.parametrize(
    "arguments", [b"", b"{}", b"[]", b"null", b'{"query":1}', b'{"query":"a","limit":"x"}', b"\xff"]
)
def test_arguments_that_cannot_be_read_are_an_error_that_says_what_is_right(arguments: bytes) -> None:
    result = json.loads(answer_search(branches(1), arguments, SERVERS, LATEST))
    assert result["isError"] is True
    assert "Expected a text as query" in text_of(result)
