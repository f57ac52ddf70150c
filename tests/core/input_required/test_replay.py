"""Tests of repeatable calls: which tools a list declares as such, and what of that is remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.limits import Limits
from isthmus.core.bridge.request_state import Claims, ClaimsKind, digest_of_value
from isthmus.core.input_required.replay import MARKS, QUESTIONS_MAX, Replays, answers, digest_of_question, digests
from isthmus.core.state.session import Audience

ANN = Audience("s", "ann", ())
BOB = Audience("s", "bob", ())


def tool(name: Any, **annotations: Any) -> dict[str, Any]:
    return {"name": name, "annotations": annotations}


def page(*tools: Any) -> bytes:
    return json.dumps({"tools": tools}, separators=(",", ":")).encode()


def may(replays: Replays, name: str, audience: Audience = ANN) -> bool:
    return replays.may_repeat(audience, "tools/call", json.dumps({"name": name}).encode())


@pytest.mark.parametrize("mark", MARKS)
def test_an_annotation_counts_for_the_audience_it_was_shown_to(mark: str) -> None:
    replays = Replays(Limits())
    replays.learn(
        ANN, page(tool("reads", **{mark: True}), tool("writes", **{mark: False}), tool("says none")), is_first=True
    )
    assert may(replays, "reads")
    assert not may(replays, "writes")
    assert not may(replays, "says none")
    assert not may(replays, "reads", BOB)


@pytest.mark.parametrize("is_one", [False, True])
def test_either_annotation_makes_a_tool_repeatable(is_one: bool) -> None:
    """The two annotations may be those of one tool, or of two."""
    read_only, idempotent = {"readOnlyHint": True}, {"idempotentHint": True}
    tools = [tool("t", **read_only, **idempotent)] if is_one else [tool("t", **read_only), tool("u", **idempotent)]
    replays = Replays(Limits())
    replays.learn(ANN, page(*tools), is_first=True)
    assert [name for name in "tuv" if may(replays, name)] == (["t"] if is_one else ["t", "u"])


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "tools/call", "completion/complete"])
@pytest.mark.parametrize("params", [None, b"{}", b'{"name":7}'])
def test_requests_that_only_read_may_be_made_twice(method: str, params: bytes | None) -> None:
    """No other request without a tool name may."""
    assert Replays(Limits()).may_repeat(ANN, method, params) is (method in ("prompts/get", "resources/read"))


@pytest.mark.parametrize(
    "result",
    [
        b'{"tools":7,"readOnlyHint":true}',
        b'{"readOnlyHint":true}',
        b'{"tools":[{"annotations":{"readOnlyHint":true}}]}',
        b'{"tools":[{"name":"t","annotations":["readOnlyHint"]}]}',
        b'{"tools":[{"name":"t","annotations":{"readOnlyHint":"true"}}]}',
        b'{"tools":[{"name":"t","annotations":{"readOnlyHint":true}}],"tools":[]}',
        b'{"tools":[{"name":"t","annotations":{"readOnlyHint":true}},{"name":"u","name":"v"}]}',
    ],
)
def test_nothing_is_learnt_from_an_unreadable_page(result: bytes) -> None:
    """The annotations known before are dropped too, because the page may be about the same tools."""
    replays = Replays(Limits())
    replays.learn(ANN, page(tool("t", readOnlyHint=True)), is_first=True)
    replays.learn(ANN, result, is_first=True)
    assert not may(replays, "t")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_new_list_replaces_the_annotations_of_the_last_one(is_first: bool) -> None:
    """A first page drops the tools known before, even if it has no annotations. A further page of the same list drops
    none."""
    replays = Replays(Limits())
    replays.learn(ANN, page(tool("t", idempotentHint=True)), is_first=True)
    replays.learn(ANN, page(tool("u")), is_first=is_first)
    assert may(replays, "t") is not is_first


def test_only_so_many_tools_are_remembered() -> None:
    """Tools beyond the limit replace all known ones."""
    replays = Replays(Limits(tools_known_max=2))
    replays.learn(ANN, page(tool("a", readOnlyHint=True), tool("b", readOnlyHint=True)), is_first=True)
    replays.learn(ANN, page(tool("c", readOnlyHint=True)), is_first=False)
    assert [name for name in "abc" if may(replays, name)] == ["c"]


def test_the_audience_whose_list_is_oldest_is_forgotten_first() -> None:
    replays = Replays(Limits(audiences_max=2))
    cat = Audience("s", "cat", ())
    for audience in (ANN, BOB, ANN, cat):
        replays.learn(audience, page(tool("t", readOnlyHint=True)), is_first=True)
    assert [audience.principal for audience in (ANN, BOB, cat) if may(replays, "t", audience)] == ["ann", "cat"]


def test_a_call_that_names_two_tools_is_an_error() -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        Replays(Limits()).may_repeat(ANN, "tools/call", b'{"name":"a","name":"b"}')


@pytest.mark.parametrize("count", [0, QUESTIONS_MAX, QUESTIONS_MAX + 1])
def test_no_question_of_a_round_with_too_many_is_kept(count: int) -> None:
    kept = digests({f"r{n}": b'{"n":%d}' % n for n in range(count)})
    assert len(kept) == (count if count <= QUESTIONS_MAX else 0)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("is_marked", [True, False])
def test_a_tool_without_annotations_promises_nothing(mark: str, is_marked: bool) -> None:
    """Members of that name elsewhere in the tool do not count, nor do the annotations of other tools."""
    replays = Replays(Limits())
    others = [tool("t", **{mark: True})] if is_marked else []
    plain = {"name": "u", "description": mark, mark: True}
    replays.learn(ANN, page(plain, {**plain, "name": "v", "annotations": None}, *others), is_first=True)
    assert [name for name in "tuv" if may(replays, name)] == (["t"] if is_marked else [])


def test_a_question_is_known_by_the_beginning_of_its_digest() -> None:
    """Sixteen characters of it are kept, so that a token has room for all questions of a round."""
    entries = {"a": b'{"method":"roots/list"}', "b": b'{ "method" : "roots/list" }', "c": b'{"method":"ping"}'}
    assert QUESTIONS_MAX == 32
    assert digests(entries) == {key: digest_of_value(entry)[:16] for key, entry in entries.items()}
    assert {len(digest) for digest in digests(entries).values()} == {16}


def test_answers_are_keyed_by_the_digests_of_their_questions() -> None:
    """Unanswered questions and answers to no question are left out."""
    asked = {"a": "d1", "b": "d2", "c": "d3"}
    claims = Claims(
        kind=ClaimsKind.REPLAY,
        issued_at_unix=1,
        expires_at_unix=2,
        owner="o",
        suspended_call="a",
        server="s",
        principal="p",
        method="tools/call",
        questions=asked,
    )
    assert answers(claims, {"a": b"1", "c": b"3", "x": b"4"}) == {"d1": b"1", "d3": b"3"}
    assert answers(claims, {}) == {}


def test_a_question_is_known_by_its_digest() -> None:
    entry = b'{"method":"roots/list"}'
    assert digest_of_question(entry) == digest_of_value(entry)[:16]
    assert digest_of_question(entry) != digest_of_question(b'{"method":"elicitation/create"}')
