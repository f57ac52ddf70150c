"""Whether a message has the shape that the official JSON Schema of its revision gives it."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ....core.oracle.methods import AUGMENTED, V4
from ....core.oracle.observations import Role
from .steps import REVISIONS, Json

RESULTS: Final[dict[str, str]] = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "completion/complete": "CompleteResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "sampling/createMessage": "CreateMessageResult",
    "elicitation/create": "ElicitResult",
    "roots/list": "ListRootsResult",
}
"""Request → the definition of its result. Of others nothing is said."""

OF_OTHER_RULES: Final = ("resultType", "ttlMs", "cacheScope")
"""Members of results whose absence has rules of its own."""

TEXT_MAX_CHARS: Final = 300
REMEMBERED: Final = 2_000
"""Shapes judged lately: a server says the same lists again and again."""


def fault_of(revision: str, sender: Role, method: str, message: Json) -> str | None:
    """What is wrong with a message's shape; None if nothing is, or nothing is known of it.

    Args:
        method: its own, or that of the request it answers; "" if that is unknown.
    """
    if revision not in REVISIONS:
        return None
    if "method" in message:
        union = ("Client" if sender is Role.CLIENT else "Server") + ("Request" if "id" in message else "Notification")
        called = _by_method(revision, union).get(method)
        return None if called is None else _fault(revision, called, msgspec.json.encode(message))
    result = message.get("result")
    if not isinstance(result, dict):
        return None  # the shape of errors, and of responses as such, has rules of its own
    name = RESULTS.get(method)
    kind = result.get("resultType")
    if kind == "input_required":
        name = "InputRequiredResult"
    elif kind not in (None, "complete"):
        return None  # an extension's
    if revision == V4 and method in AUGMENTED and isinstance(result.get("task"), dict):
        return None  # whether it may be a task, and what that has, are rules of their own
    if name is None or name not in schema_of(revision):
        return None
    return _fault(revision, name, msgspec.json.encode(result))


@cache
def schema_of(revision: str) -> dict[str, Any]:
    """The definitions of a revision's schema, each under its name."""
    text = (
        resources.files(__package__.rpartition(".")[0])
        .joinpath("schemas", f"{revision}.json")
        .read_text(encoding="utf-8")
    )
    definitions: dict[str, Any] = json.loads(text)["$defs"]
    return definitions


@cache
def _by_method(revision: str, union: str) -> dict[str, str]:
    """Method → definition, of those that the union lists."""
    definitions = schema_of(revision)
    listed = definitions.get(union, {})
    if "properties" in listed:
        return {listed["properties"]["method"]["const"]: union}
    names = [each["$ref"].rpartition("/")[2] for each in listed.get("anyOf", ())]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}


@cache
def _validator(revision: str, name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema_of(revision)})


@lru_cache(REMEMBERED)
def _fault(revision: str, name: str, text: bytes) -> str | None:
    faults = [
        fault
        for fault in _validator(revision, name).iter_errors(json.loads(text))
        if not (fault.validator == "required" and not fault.absolute_path and _is_of_others(fault.message))
    ]
    found = best_match(faults)
    if found is None:
        return None
    return f"{name}, {found.json_path}: {found.message}"[:TEXT_MAX_CHARS]


def _is_of_others(text: str) -> bool:
    return any(text.startswith(f"'{name}'") for name in OF_OTHER_RULES)
