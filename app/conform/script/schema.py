"""Checks messages against the official JSON Schema of their revision."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final

import msgspec

from ....core.oracle.methods import AUGMENTED, V4
from ....core.oracle.observations import Role
from ...base.errors import Failed
from .steps import REVISIONS, Json

WHAT_TO_INSTALL: Final = "isthmus conform needs Hypothesis and jsonschema: pip install 'isthmus[conform]'"

try:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
except ModuleNotFoundError:
    raise Failed(WHAT_TO_INSTALL) from None

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
"""Method of a request → the definition of its result. Results of other methods are not checked."""

OF_OTHER_RULES: Final = ("resultType", "ttlMs", "cacheScope")
"""Members of results whose absence is the subject of other rules."""

TEXT_MAX_CHARS: Final = 300
REMEMBERED: Final = 2_000
"""Size of the cache of checked messages: a server sends the same lists again and again."""


def fault_of(revision: str, sender: Role, method: str, message: Json) -> str | None:
    """Returns what is wrong with the shape of a message; None if nothing is, or no schema is known for it.

    Args:
        method: the method of the message, or of the request that it answers; "" if unknown.
    """
    if revision not in REVISIONS:
        return None
    if "method" in message:
        union = ("Client" if sender is Role.CLIENT else "Server") + ("Request" if "id" in message else "Notification")
        definition = _by_method(revision, union).get(method)
        return None if definition is None else _fault(revision, definition, msgspec.json.encode(message))
    result = message.get("result")
    if not isinstance(result, dict):
        return None  # errors, and responses as such, are the subject of other rules
    name = RESULTS.get(method)
    kind = result.get("resultType")
    if kind == "input_required":
        name = "InputRequiredResult"
    elif kind not in (None, "complete"):
        return None  # the result is of an extension
    if revision == V4 and method in AUGMENTED and isinstance(result.get("task"), dict):
        return None  # tasks in results are the subject of other rules
    if name is None or name not in schema_of(revision):
        return None
    return _fault(revision, name, msgspec.json.encode(result))


@cache
def schema_of(revision: str) -> dict[str, Any]:
    """Returns the definitions of a revision's schema by name."""
    text = (
        resources.files(__package__.rpartition(".")[0])
        .joinpath("schemas", f"{revision}.json")
        .read_text(encoding="utf-8")
    )
    definitions: dict[str, Any] = json.loads(text)["$defs"]
    return definitions


@cache
def _by_method(revision: str, union: str) -> dict[str, str]:
    """Returns method → name of the definition, for the messages that a union lists."""
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
        if not (fault.validator == "required" and not fault.absolute_path and _is_of_other_rules(fault.message))
    ]
    found = best_match(faults)
    if found is None:
        return None
    return f"{name}, {found.json_path}: {found.message}"[:TEXT_MAX_CHARS]


def _is_of_other_rules(text: str) -> bool:
    return any(text.startswith(f"'{name}'") for name in OF_OTHER_RULES)
