"""The validation of frames from a client or a server against a revision.

The schemas are the official ones, as @modelcontextprotocol/conformance carries them. It has none of 2024-11-05, so that
one is the next one without the additions of its revision. Schemas leave objects open, so members that have no place in
an era are looked for by name too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import rig
from abilities import ABILITIES, REVISIONS, K
from jsonschema import Draft202012Validator

FOLDER: Final = rig.REAL / "schemas"

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
"""The definition of each method's result. All others use `Result`."""

MAY_ASK: Final = ("tools/call", "prompts/get", "resources/read")
"""Methods whose results may be `input_required` (2026-07-28 basic/patterns/mrtr)."""

ONLY_STATELESS: Final = ("resultType", "ttlMs", "cacheScope", "inputRequests", "requestState")
"""Members of results that have no place in a session."""
ONLY_STATELESS_PARAMS: Final = ("inputResponses", "requestState")
ONLY_SESSIONS_PARAMS: Final = ("elicitationId", "task")
RESERVED: Final = range(-32099, -32019)
"""Codes that only the specification may assign (2026-07-28 basic, "Error Codes")."""
CODES: Final = (-32020, -32021, -32022)
"""Codes that it has assigned."""
RETIRED: Final = (-32002, -32042)
"""Codes of earlier revisions, which must not be used any more."""


@cache
def schema_of(revision: str) -> dict[str, Any]:
    """Returns the schema with its definitions under `$defs`, whatever it calls them."""
    if revision == REVISIONS[0]:
        return _without_audio(schema_of(REVISIONS[1]))
    path = rig.require(FOLDER / f"{revision}.json")
    text = path.read_text(encoding="utf-8").replace("#/definitions/", "#/$defs/")
    schema: dict[str, Any] = json.loads(text)
    return {"$defs": schema.get("$defs") or schema["definitions"]}


def _without_audio(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of 2024-11-05. The other additions of 2025-03-26 are optional members and batches, which no
    open schema refuses."""
    definitions: dict[str, Any] = json.loads(json.dumps(schema["$defs"]))
    definitions["AudioContent"] = False
    return {"$defs": definitions}


@cache
def _validator(revision: str, name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", **schema_of(revision)})


@cache
def _by_method(revision: str, union: str) -> dict[str, str]:
    """Returns the definition of each method that the union lists."""
    definitions = schema_of(revision)["$defs"]
    listed = definitions.get(union, {})
    if "properties" in listed:
        return {listed["properties"]["method"]["const"]: union}
    names = [one["$ref"].rpartition("/")[2] for one in listed.get("anyOf", [listed] if "$ref" in listed else [])]
    return {definitions[name]["properties"]["method"]["const"]: name for name in names}


def _faults(revision: str, name: str, value: object) -> Iterator[str]:
    for error in _validator(revision, name).iter_errors(value):
        deepest = error
        while deepest.context:
            deepest = max(deepest.context, key=lambda one: len(one.absolute_path))
        yield f"{name}: at {error.json_path}: {deepest.message[:300]}"


def faults(revision: str, frame: Any, *, is_from_client: bool, of: str | None) -> list[str]:
    """Returns the errors of a frame. Empty if it is valid.

    Args:
        of: the method of the request that the frame answers, if it is an answer.
    """
    if not isinstance(frame, dict):
        return [f"got {type(frame).__name__}, expected an object"]
    if "method" in frame:
        return list(_request_faults(revision, frame, "Client" if is_from_client else "Server"))
    if of is None:
        return [f"an answer to {frame.get('id')!r}, which was not asked"]
    return list(_answer_faults(revision, frame, of))


def _request_faults(revision: str, frame: dict[str, Any], side: str) -> Iterator[str]:
    kind = "Request" if "id" in frame else "Notification"
    method, params = frame["method"], frame.get("params", {})
    names = _by_method(revision, side + kind)
    if method in names:
        yield from _faults(revision, names[method], frame)
    elif not method.startswith("x-"):
        yield f"{method} is no {kind.lower()} of a {side.lower()} in this revision"
    yield from _faults(revision, f"JSONRPC{kind}", frame)
    strangers: tuple[str, ...] = ONLY_SESSIONS_PARAMS
    if "handshake" in ABILITIES[revision]:
        strangers = ONLY_STATELESS_PARAMS
        yield from (f"{method} with {name}" for name in params.get("_meta", {}) if name.startswith(K))
    yield from (f"{method} with {name}" for name in strangers if name in params)


def _answer_faults(revision: str, frame: dict[str, Any], of: str) -> Iterator[str]:
    is_session = "handshake" in ABILITIES[revision]
    newer = "JSONRPCErrorResponse" in schema_of(revision)["$defs"]
    if unknown := sorted(set(frame) - {"jsonrpc", "id", "result", "error"}):
        yield f"an answer with {unknown}"
    if "error" in frame:
        yield from _faults(revision, "JSONRPCErrorResponse" if newer else "JSONRPCError", frame)
        code = frame["error"].get("code")
        if not is_session and isinstance(code, int) and code not in CODES and (code in RETIRED or code in RESERVED):
            yield f"error {code}, which must not be emitted"
        return
    yield from _faults(revision, "JSONRPCResultResponse" if newer else "JSONRPCResponse", frame)
    result = frame.get("result", {})
    if is_session:
        yield from (f"a result of {of} with {name}" for name in ONLY_STATELESS if name in result)
        yield from (f"a result of {of} with {name}" for name in result.get("_meta", {}) if name.startswith(K))
    kind = None if is_session else result.get("resultType")
    if kind == "input_required":
        if of not in MAY_ASK:
            yield f"{of} answered by input_required"
        yield from _faults(revision, "InputRequiredResult", result)
        for name, asked in result.get("inputRequests", {}).items():
            yield from (f"{name}: {one}" for one in ONLY_SESSIONS_PARAMS if one in asked.get("params", {}))
    else:
        if kind not in (None, "complete"):
            yield f"resultType {kind!r}"
        yield from _faults(revision, RESULTS.get(of, "Result"), result)
