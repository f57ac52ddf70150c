"""Pointers into lists of schemas are moved with the schema they are in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.bridge.output_schema import DEPTH_MAX, wrap_schema

INNER = "#/$defs/a"
MOVED = "#/properties/result/$defs/a"


def with_pointer(place: Any, pointer: str) -> Any:
    """`place` with a schema that points there in the place of "here"."""
    if place == "here":
        return {"$ref": pointer}
    if isinstance(place, list):
        return [with_pointer(part, pointer) for part in place]
    if isinstance(place, dict):
        return {key: with_pointer(part, pointer) for key, part in place.items()}
    return place


@pytest.mark.parametrize(
    "place",
    [
        *({key: ["here"]} for key in ("allOf", "anyOf", "oneOf", "prefixItems")),
        *({key: [True, {"type": "string"}, "here", {"not": "here"}]} for key in ("allOf", "anyOf", "oneOf")),
        *({key: "here"} for key in ("items", "not", "if", "then", "else", "contains", "additionalProperties")),
        *({key: {"x": "here", "y": {"anyOf": ["here"]}}} for key in ("properties", "patternProperties")),
        {"items": ["here"]},
    ],
    ids=json.dumps,
)
def test_a_pointer_leads_to_the_same_schema(place: Any) -> None:
    """The schema may stand wherever one is allowed."""
    defined = {"type": "array", "$defs": {"a": {"type": "string"}}}
    found = json.loads(wrap_schema(json.dumps({**defined, **with_pointer(place, INNER)}).encode()))
    assert found["properties"]["result"] == {**defined, **with_pointer(place, MOVED)}


@pytest.mark.parametrize("key", ["allOf", "anyOf"])
@pytest.mark.parametrize("off", [0, 1])
def test_lists_within_lists_count_each_as_a_level(key: str, off: int) -> None:
    """Each list and each schema in it is one level; the bound itself is accepted."""
    levels = DEPTH_MAX // 2 - 1 + off  # and what the list stands in
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {key: [schema]}
    deep = json.dumps({"type": "array", **schema}).encode()
    if not off:
        assert json.loads(wrap_schema(deep))["properties"]["result"] == json.loads(deep)
    else:
        with pytest.raises(RemoteProtocolError, match=f"more than {DEPTH_MAX} levels"):
            wrap_schema(deep)
