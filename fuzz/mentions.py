"""Handles stand anywhere in the arguments of a call: replacing them with paths changes those strings only.

The input is made UTF-8, as all arguments are that are read here; `@U` in it stands for the handle of an upload, `@A`
for the URI of an artifact. Accepted outcomes: `ArgumentProblem`; or mentions, at most as many as allowed, in order and
without overlaps. Replacing them gives params of the same shape without a handle; strings that were nothing but a handle
are then the path itself, to an independent reader.
"""

from __future__ import annotations

import json
from typing import Any

from isthmus.core.base.plan import Deliver
from isthmus.core.files.calls.arguments import ArgumentProblem
from isthmus.core.files.calls.mentions import Mention, find_mentions, replacements
from isthmus.core.jsonrpc.splice import splice

SID, ID = "0123456789abcdef" * 2, "fedcba9876543210" * 2
UPLOAD, ARTIFACT = f"upload://sessions/{SID}/{ID}", f"artifact://sessions/{SID}/{ID}"
PATH = '/w/it\'s "a\\b".txt'
LIMIT = 8


def shape(value: Any) -> Any:
    """Returns the value with each string but the keys replaced by an empty one."""
    if isinstance(value, dict):
        return {key: shape(below) for key, below in value.items()}
    if isinstance(value, list):
        return [shape(below) for below in value]
    return "" if isinstance(value, str) else value


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for below in value for text in strings(below)]
    return [value] if isinstance(value, str) else []


def found(params: bytes) -> list[Mention] | None:
    try:
        return find_mentions(params, limit=LIMIT)
    except ArgumentProblem as problem:
        assert str(problem)
        return None


def test_one_input(data: bytes) -> None:
    params = data.replace(b"@U", UPLOAD.encode()).replace(b"@A", ARTIFACT.encode())
    params = params.decode(errors="replace").encode()
    mentions = found(params)
    if not mentions:
        return
    assert len(mentions) <= LIMIT
    at = 0
    for mention in mentions:
        assert at <= mention.start < mention.stop
        # Changes to a seed may make other ids of a handle that is spelled out in it.
        assert mention.text.startswith(f"{mention.kind}://sessions/{mention.sid}/{mention.id}")
        assert mention.quoting[-1] == "json"
        at = mention.stop
    placed = [(mention, PATH) for mention in mentions]
    after = splice(params, replacements(placed, lambda mention: Deliver.PATH))
    assert found(after) == []
    before_value, after_value = json.loads(params, parse_float=str), json.loads(after, parse_float=str)
    assert shape(after_value) == shape(before_value)
    changed = [(old, new) for old, new in zip(strings(before_value), strings(after_value), strict=True) if old != new]
    assert len(changed) <= len(mentions)
    wholes = [mention for mention in mentions if mention.is_whole and not mention.is_nested]
    assert [new for _, new in changed].count(PATH) >= sum(not mention.has_prefix for mention in wholes)
