"""Tests of the names that rules see before a request is routed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core import Kind, ServerPlan
from isthmus.core.base.governance import Override, Shown
from isthmus.core.upstream.presentation import raw_params

SWAPPED = Shown(overrides=(Override(tool="read", rename="wipe"), Override(tool="wipe", rename="read")))


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "read", "arguments": {"name": "x"}}, "wipe"),
        ("tools/call", {"name": "other"}, "other"),
        ("prompts/get", {"name": "read"}, "read"),
        ("tools/call", {"arguments": {}}, None),
    ],
)
def test_a_call_is_judged_by_the_servers_name(method: str, params: Any, name: str | None) -> None:
    plan = ServerPlan(id="a", kind=Kind.PIPE, shown=SWAPPED)
    made = raw_params(plan, method, json.dumps(params).encode())
    assert made is not None
    assert json.loads(made) == (params if name is None else params | {"name": name})


def test_params_that_cannot_be_read_are_left_to_others() -> None:
    plan = ServerPlan(id="a", kind=Kind.PIPE, shown=SWAPPED)
    for params in (None, b"[]", b'{"name":"read","name":"x"}', b'{"name":"read","Name":"x"}', b'{"name":5}'):
        assert raw_params(plan, "tools/call", params) == params
