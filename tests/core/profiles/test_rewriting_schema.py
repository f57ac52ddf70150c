"""The places where names and URIs are rewritten, held against the schemas of all revisions.

Of each message there are samples with every member of its schema and every alternative, in which each text says where
it stands. Whatever text is not rewritten needs a reason in `EXCEPTIONS`, whether it looks like a URI or not. What is
rewritten has to be one of `REWRITTEN`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.methods import LISTEN
from isthmus.core.profiles.rewriting import LISTINGS, MESSAGES, NAMING, RESULTS, SERVER, Rewriter
from profile_worlds import world

SCHEMAS: Final = Path(__file__).parents[3] / "app" / "conform" / "schemas"
REVISIONS: Final = sorted(path.stem for path in SCHEMAS.glob("*.json"))
PROFILE: Final = world({"server": "a"})
REWRITER: Final = Rewriter(PROFILE.names, PROFILE.uris)
ANY: Final = {"type": "resource_link", "name": "@ANY", "uri": "@ANY", "resource": {"uri": "@ANY"}}
"""A value where the schema allows any."""

REWRITTEN: Final = (
    "List* Tool.name",
    "List* Prompt.name",
    "List* Resource.uri",
    "List* ResourceTemplate.uriTemplate",
    "* ResourceLink.uri",
    "* BlobResourceContents.uri",
    "* TextResourceContents.uri",
    "CallToolRequest *.name",
    "GetPromptRequest *.name",
    "ReadResourceRequest *.uri",
    "SubscribeRequest *.uri",
    "UnsubscribeRequest *.uri",
    "CompleteRequest PromptReference.name",
    "CompleteRequest Resource*Reference.uri",
    "ResourceUpdatedNotification *.uri",
    "Subscriptions* SubscriptionFilter.resourceSubscriptions[[]]",
    "* Elicit*Params.message",
)
"""The fields that are rewritten: the message, the innermost definition of its schema, and the member."""

EXCEPTIONS: Final = {
    # What the schema does not say.
    "* ANY": "a value of any form: in arguments, structured content, `_meta`, schemas, data",
    "* Tool.*Schema.*": "a schema",
    "ElicitRequest *Schema.*": "a schema",
    "*Response *Schema.*": "a schema, of a question in a result",
    "* *arguments.any": "an argument of a prompt, or a variable of a template",
    "* *.argument.*": "the same",
    "* *.completion.values[[]]": "a value for it",
    "* ElicitResult.content.any*": "what the user put in",
    # Names and URIs, but none that a server is asked for.
    "* *Implementation.*": "the program that speaks, and its pages on the web",
    "* Icon.*": "an image on the web, or a data URI",
    "* Root.*": "a folder of the client",
    "* ElicitRequestURLParams.url": "a page on the web",
    "* PromptArgument.name": "a name within its prompt",
    "* ModelHint.name": "a model",
    "* Resource*.name": "what people call it: a resource is known by its URI",
    "* ToolUseContent.*": "a tool of the sampling request that the message is in",
    "CreateMessageRequest Tool.name": "a tool of this sampling request alone",
    "*ResultResponse Tool.name": "a tool of the sampling request that is a question in the result",
    "CreateMessageResult *.uri": "a model's answer holds no result of a tool: the client adds that, as a message",
    "*Request ResourceLink.uri": "the same, of an answer in `inputResponses`",
    "*Request *ResourceContents.uri": "the same",
    # Text, and words of the protocol.
    "* *.description": "text for people",
    "* *.title": "text for people",
    "* *.message": "text for people",
    "* *.statusMessage": "text for people",
    "* *.reason": "text for people",
    "* *.instructions": "text for models",
    "* *.systemPrompt": "text for models",
    "* *.stopSequences[[]]": "text of models",
    "* *.text": "text",
    "* *.data": "Base64",
    "* *.blob": "Base64",
    "* *.mimeType": "a media type",
    "* *.model": "a model",
    "* *.stopReason": "a word of the protocol",
    "* *.resultType": "a word of the protocol",
    "* *protocolVersion": "a revision",
    "* *.supportedVersions[[]]": "a revision",
    "* *.logger": "a part of the server",
    "* *.lastModified": "a moment",
    "* *.createdAt": "a moment",
    "* *.lastUpdatedAt": "a moment",
    # Opaque values.
    "* *ursor": "opaque",
    "* *.taskId": "opaque",
    "* *.elicitationId": "opaque",
    "* *.requestState": "opaque",
    "* *.toolUseId": "opaque",
    "* RequestId": "opaque",
    "* ProgressToken": "opaque",
}
"""The fields that are not rewritten, in the same form, and the reasons."""


# --- Samples --------------------------------------------------------------------------------------------------------


@cache
def definitions(revision: str) -> dict[str, Any]:
    loaded = json.loads((SCHEMAS / f"{revision}.json").read_text(encoding="utf-8"))["$defs"]
    assert isinstance(loaded, dict)
    if "GetTaskPayloadResult" in loaded:  # the result of the request that became the task
        loaded["GetTaskPayloadResult"] = {"$ref": "#/$defs/CallToolResult"}
    return loaded


def samples(defs: Mapping[str, Any], schema: Any, where: str, text_of: Callable[[str], str]) -> list[Any]:
    """Returns values of a schema that together have all of its members and alternatives. A text is `text_of` where it
    stands: the innermost definition, and the way from there."""

    def below(inner: Any, at: str = where) -> list[Any]:
        return samples(defs, inner, at, text_of)

    match schema:
        case {"$ref": str(reference)}:
            name = reference.rpartition("/")[2]
            return [ANY] if name in ("JSONValue", "JSONObject") else below(defs[name], name)
        case {"const": constant}:
            return [constant]
        case {"enum": [first, *_]}:
            return [first]
        case {"anyOf": alternatives} | {"oneOf": alternatives}:
            return [value for one in alternatives for value in below(one)]
        case {"allOf": parts}:
            return [
                {key: value for part in chosen for key, value in part.items()}
                for chosen in itertools.product(*(below(part)[:1] for part in parts))
            ]
        case {"type": list(types)}:
            return [value for one in types for value in below({**schema, "type": one})]
        case {"type": "array"}:
            return [below(schema.get("items", {}), f"{where}[]")]
        case {"type": "object"} | {"properties": _}:
            members = {key: below(inner, f"{where}.{key}") for key, inner in schema.get("properties", {}).items()}
            further = schema.get("additionalProperties", {})
            if further:
                members |= {f"any{at}": [one] for at, one in enumerate(below(further, f"{where}.any"))}
            else:
                members["any"] = [ANY]
            first = {key: values[0] for key, values in members.items()}
            return [first, *({**first, key: one} for key, values in members.items() for one in values[1:])]
        case {"type": "string"}:
            return [text_of(where)]
        case {"type": "integer"} | {"type": "number"}:
            return [1]
        case {"type": "boolean"}:
            return [True]
        case {"type": "null"}:
            return [None]
    assert schema in ({}, True), schema
    return [ANY]


def texts(before: Any, after: Any) -> Iterator[tuple[str, bool]]:
    """Yields each text of `before`, and whether it is another one in `after`, which is the same otherwise."""
    if isinstance(before, dict):
        assert list(before) == [key for key in after if key != "_meta" or key in before]
        for key, value in before.items():
            yield from texts(value, after[key])
    elif isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            yield from texts(one, other)
    elif isinstance(before, str) and before.startswith(MARKS):
        yield before, before != after
    else:
        assert before == after


# --- Messages -------------------------------------------------------------------------------------------------------


def unmarked(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Takes the server's id out of the entries of a list, each of which has it."""
    if method in LISTINGS:
        for entry in result[LISTINGS[method].array]:
            assert entry["_meta"].pop(SERVER) == "server"
    return result


def each_text(revision: str) -> Iterator[tuple[str, str, bool]]:
    """Yields the message of each text, where it stands in the schema, and whether it is rewritten."""
    defs = definitions(revision)

    def all_of(name: str, change: Callable[[Any], Any], text_of: Callable[[str], str]) -> Iterator[Any]:
        for value in samples(defs, defs[name], name, text_of):
            for text, is_changed in texts(value, change(json.loads(json.dumps(value)))):
                yield name, original(text), is_changed

    for name, schema in defs.items():
        method = schema.get("properties", {}).get("method", {}).get("const")
        if method is None:
            continue
        if name.endswith("Notification") or method == "sampling/createMessage":
            yield from all_of(name, lambda message, method=method: from_server(method, message), as_text)
        else:
            for form in (as_name, as_uri):
                yield from all_of(name, lambda message, method=method: from_client(method, message), form)
        for result in (name.replace("Request", "ResultResponse"), name.replace("Request", "Result")):
            if result in defs and result != name:
                yield from all_of(result, lambda value, method=method: result_of(method, value), as_text)
                break


MARKS: Final = ("@", "a__", "a+x:")


def as_text(where: str) -> str:
    return f"@{where}"


def as_name(where: str) -> str:
    """A name that clients may send."""
    return "a__" + where.replace("[]", "-0").replace(".", "-_").replace("/", "-1")


def as_uri(where: str) -> str:
    """A URI that clients may send."""
    return f"a+x:{where}"


def original(text: str) -> str:
    text = next(text.removeprefix(mark) for mark in MARKS if text.startswith(mark))
    return text.replace("-_", ".").replace("-0", "[]").replace("-1", "/")


def from_server(method: str, message: dict[str, Any]) -> dict[str, Any]:
    params = json.dumps(message.get("params", {})).encode()
    return (
        {**message, "params": json.loads(REWRITER.message("server", method, params))}
        if "params" in message
        else message
    )


def from_client(method: str, message: dict[str, Any]) -> dict[str, Any]:
    if "params" not in message:
        return message
    params = json.dumps(message["params"]).encode()
    if method == LISTEN:
        wanted = message["params"]["notifications"]
        routes = [REWRITER.route_uri(uri, {}) for uri in wanted["resourceSubscriptions"]]
        raws = [route.raw for route in routes if route is not None]
        routed = {**message["params"], "notifications": {**wanted, "resourceSubscriptions": raws}}
        return {**message, "params": routed} if raws else message
    try:
        addressed = REWRITER.address(method, params, {})
    except RemoteProtocolError:
        return message  # of the two forms of texts, one is no name of the kind that is wanted
    return message if addressed is None else {**message, "params": json.loads(addressed.params)}


def result_of(method: str, value: dict[str, Any]) -> dict[str, Any]:
    if method in ("sampling/createMessage", "elicitation/create", "roots/list"):
        return value  # a client's, which is not rewritten
    if "jsonrpc" in value:
        return {**value, "result": result_of(method, value["result"])}
    return unmarked(method, json.loads(REWRITER.result("server", method, json.dumps(value).encode())))


@cache
def fields() -> dict[tuple[str, str, str], set[bool]]:
    """Returns by revision, message and place whether the text there is rewritten; both for some."""
    found: dict[tuple[str, str, str], set[bool]] = {}
    for revision in REVISIONS:
        for message, where, is_changed in each_text(revision):
            found.setdefault((revision, message, where), set()).add(is_changed)
    return found


def matching(patterns: Iterable[str], message: str, where: str) -> list[str]:
    return [pattern for pattern in patterns if fnmatchcase(f"{message} {where}", pattern)]


def test_every_text_is_rewritten_or_has_a_reason_why_not() -> None:
    for (revision, message, where), outcomes in fields().items():
        is_rewritten = True in outcomes
        expected = REWRITTEN if is_rewritten else EXCEPTIONS
        assert matching(expected, message, where), (revision, message, where, is_rewritten)


def test_what_servers_send_is_rewritten_wherever_it_stands() -> None:
    """Requests of clients are tried with names and with URIs, of which each has one."""
    for (revision, message, where), outcomes in fields().items():
        assert len(outcomes) == 1 or message.endswith("Request"), (revision, message, where)


def test_each_line_of_both_tables_is_needed() -> None:
    for patterns, is_rewritten in ((REWRITTEN, True), (EXCEPTIONS, False)):
        used = {
            pattern
            for (_, message, where), outcomes in fields().items()
            for pattern in matching(patterns, message, where)
            if (True in outcomes) == is_rewritten
        }
        assert used == set(patterns)


def test_each_place_is_in_some_schema() -> None:
    """A message that no revision has is rewritten only if it is one of the extensions."""
    methods = {
        schema["properties"]["method"]["const"]
        for revision in REVISIONS
        for schema in definitions(revision).values()
        if "const" in schema.get("properties", {}).get("method", {})
    }
    assert {*LISTINGS, *RESULTS, *MESSAGES, *NAMING, LISTEN} - methods == {"notifications/tasks"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_has_its_places(revision: str) -> None:
    """The samples are not empty: these are the messages of each revision that have names or URIs."""
    found = {message for (one, message, _), outcomes in fields().items() if one == revision and True in outcomes}
    shared = {"CallToolRequest", "GetPromptRequest", "ReadResourceRequest", "CompleteRequest"}
    shared |= {"ResourceUpdatedNotification"}
    results = {"CallTool", "GetPrompt", "ReadResource", "ListTools", "ListPrompts", "ListResources"}
    results |= {"ListResourceTemplates"}
    if revision == "2026-07-28":
        further = {"CreateMessageRequest", "SubscriptionsListenRequest", "SubscriptionsAcknowledgedNotification"}
        assert found == shared | further | {f"{each}ResultResponse" for each in results}
    else:
        further = {"SubscribeRequest", "UnsubscribeRequest"}
        further |= {"GetTaskPayloadResult", "CreateMessageRequest"} if revision == "2025-11-25" else set()
        assert found == shared | further | {f"{each}Result" for each in results}


def test_a_task_of_the_extension_has_the_places_of_its_result() -> None:
    """The schema of the extension is not here: `result` is that of the call, `inputRequests` are those of a result."""
    defs = definitions("2026-07-28")
    for result in samples(defs, defs["CallToolResult"], "CallToolResult", as_text):
        task = {"taskId": "1", "result": result, "uri": "@"}
        after = result_of("tasks/get", task)
        assert after == {**task, "result": result_of("tools/call", result)} != task
        assert from_server("notifications/tasks", {"params": task})["params"] == after
    for questions in samples(defs, defs["InputRequests"], "InputRequests", as_text):
        asked = {"inputRequests": questions}
        assert result_of("tasks/get", asked) == result_of("tools/call", asked) != asked
