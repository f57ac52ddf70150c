"""Tests that the packaged schemas agree with the official ones, as the official conformance suite carries them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import rig
from isthmus.app.conform.script.schema import schema_of
from validators import FOLDER

PROSE: Final = ("description", "$comment", "examples", "title", "format", "deprecated", "default")
NAMING: Final = ("properties", "patternProperties", "$defs", "definitions")
NEWER: Final = {
    "NumberSchema",  # bounds were integers, by mistake
    "SubscriptionsListenResult",
    "SubscriptionsListenResultMeta",
    "SubscriptionsListenResultMetaObject",
    "SubscriptionsListenResultResponse",
}
"""Definitions that were corrected after the suite copied them."""


def without_prose(node: Any, *, is_naming: bool = False) -> Any:
    if isinstance(node, list):
        return [without_prose(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {name: value for name, value in node.items() if is_naming or name not in PROSE}
    return {name: without_prose(value, is_naming=name in NAMING and not is_naming) for name, value in kept.items()}


@pytest.mark.real
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_packaged_schema_is_the_official_one(revision: str) -> None:
    text = rig.require(FOLDER / f"{revision}.json").read_text(encoding="utf-8")
    official = without_prose(json.loads(text.replace("#/definitions/", "#/$defs/")))
    definitions = official.get("$defs") or official["definitions"]
    ours = schema_of(revision)
    assert (ours.keys() ^ definitions.keys()) <= NEWER
    assert {name for name in ours.keys() & definitions.keys() if ours[name] != definitions[name]} <= NEWER
