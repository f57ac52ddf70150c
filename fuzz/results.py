"""A peer sends any JSON: its translation is valid in the other era, or it is refused; translating twice adds nothing.

The first byte says what the rest is: a result (and of which method), an error, capabilities, the result of a handshake,
params, a server request or its response, or a form and its content. Accepted outcomes: `RemoteProtocolError`; or JSON,
to an independent reader, without the members that only the other era has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.base.revisions import LEGACY, MODERN
from isthmus.core.bridge import (
    capabilities,
    discovery,
    elicitation,
    errors,
    input_requests,
    results,
    task_support,
)
from isthmus.core.bridge.related_task import related_id, with_related, without_related
from isthmus.core.bridge.request_meta import RequestMeta, add, read, strip
from isthmus.core.jsonrpc.envelope import usable_error

METHODS: Final = ("tools/call", "tools/list", "prompts/get", "resources/read", "acme/own")
MODERN_ONE: Final = MODERN["2026-07-28"]
INFO: Final = b'{"name":"real","version":"1"}'
ENVELOPE: Final = RequestMeta("2026-07-28", b"{}", INFO)


class Number(str):
    """A number as it was written."""


def parse(data: bytes) -> Any:
    """Returns the decoded value, with numbers as they are written.

    Raises:
        ValueError, RecursionError: it cannot be decoded.
    """
    return json.loads(data.decode(), parse_int=Number, parse_float=Number)


def outcome(call: Callable[[], bytes | None]) -> Any:
    """Returns the decoded result of the call; None if the call raises RemoteProtocolError or returns None."""
    try:
        result = call()
    except RemoteProtocolError as error:
        assert error.message.startswith(("got ", "this "))
        return None
    return None if result is None else parse(result)


def check_result(method: str, data: bytes) -> None:
    made = outcome(lambda: results.to_modern(method, data, server_info=INFO))
    if made is not None:
        assert made["resultType"] == "complete"
        assert method not in results.CACHEABLE or {"ttlMs", "cacheScope"} <= set(made)
        modern = results.to_modern(method, data, server_info=INFO)
        assert parse(results.to_modern(method, modern, server_info=INFO)) == made
        for client in LEGACY.values():
            legacy = results.to_legacy(method, modern, client=client, server=MODERN_ONE)
            decoded = parse(legacy)
            assert "resultType" not in decoded
            assert method not in results.CACHEABLE or {"ttlMs", "cacheScope"}.isdisjoint(decoded)
            assert set(results.ENVELOPE).isdisjoint(decoded.get("_meta") or {})
            structured = decoded.get("structuredContent", {})
            assert method != "tools/call" or isinstance(structured, dict)
    for client in LEGACY.values():
        for server in (*LEGACY.values(), MODERN_ONE):
            outcome(lambda client=client, server=server: results.to_legacy(method, data, client=client, server=server))  # type: ignore[misc]
    if made is not None and method == "tools/list":
        results.wrapped_tools(data)
        task_support.read_support(data)
        task_support.show_support(data, lambda name, support: support)


def check_error(method: str, data: bytes) -> None:
    data = usable_error(data)
    for translate in (errors.to_modern, errors.to_legacy):
        error = parse(translate(method, b'{"uri":"a:b"}', data))
        assert isinstance(error["code"], str)
    errors.to_tool_result(method, data)
    assert 200 <= errors.http_status(data) < 600
    parse(errors.to_missing_capability(b"{}", error=data) or b"{}")
    discovery.refused_revisions(data)


def check_capabilities(data: bytes) -> None:
    for features in LEGACY.values():
        outcome(lambda features=features: capabilities.client_to_legacy(data, features))  # type: ignore[misc]
        outcome(lambda features=features: capabilities.client_to_modern(data, features))  # type: ignore[misc]
        outcome(lambda features=features: capabilities.server_to_legacy(data, features))  # type: ignore[misc]
        outcome(lambda features=features: capabilities.server_to_modern(data, server=features, has_push=True))  # type: ignore[misc]
    capabilities.fingerprint(data)
    capabilities.declared(data, "sampling", "tools")
    outcome(lambda: capabilities.missing(data, "elicitation/create", b'{"mode":"url"}'))


def check_handshake(data: bytes) -> None:
    made = outcome(lambda: discovery.to_discover_result(data, has_push=True))
    if made is not None:
        again = discovery.to_discover_result(data, has_push=True)
        for client in LEGACY.values():
            parse(discovery.to_initialize_result(again, client=client, name="x"))
    for client in LEGACY.values():
        outcome(lambda client=client: discovery.to_initialize_result(data, client=client, name="x"))  # type: ignore[misc]
    discovery.introduction(data)
    discovery.served_revisions(data)


def check_params(data: bytes) -> None:
    added = outcome(lambda: add(data, ENVELOPE))
    if added is not None:
        with_envelope = add(data, ENVELOPE)
        assert read(with_envelope) == ENVELOPE
        bare = strip(with_envelope)
        assert bare is None or strip(bare) == bare
    outcome(lambda: strip(data))
    outcome(lambda: without_related(data))
    marked = outcome(lambda: with_related(data, "task"))
    if marked is not None:
        assert related_id(with_related(data, "task")) == "task"
        assert related_id(without_related(with_related(data, "task"))) is None


def check_question(data: bytes) -> None:
    for method in ("elicitation/create", "sampling/createMessage", "roots/list"):
        outcome(lambda method=method: input_requests.embed(method, data, capabilities=b"{}"))  # type: ignore[misc]
        for features in LEGACY.values():
            outcome(lambda method=method, features=features: input_requests.to_older(method, data, features))  # type: ignore[misc]
            outcome(lambda method=method, features=features: input_requests.answer_to_legacy(method, data, features))  # type: ignore[misc]
    for asked in input_requests.read_questions(data)[0]:
        parse(input_requests.embed(asked.method, asked.params))
    parse(input_requests.retried(data, input_requests.read_responses(data), b'"state"'))


def check_form(data: bytes) -> None:
    schema, _, content = data.partition(b"\n")
    parse(elicitation.plain_form(schema))
    parse(elicitation.full_content(schema, content))


def test_one_input(data: bytes) -> None:
    kind, rest = data[0] % 11 if data else 0, data[1:]
    checks: tuple[Callable[[bytes], None], ...] = (
        check_capabilities,
        check_handshake,
        check_params,
        check_question,
        check_form,
    )
    try:
        for part in rest.partition(b"\n")[::2] if kind == 10 else [rest]:
            parse(part)
    except (ValueError, RecursionError):
        return  # these functions only get valid JSON
    try:
        if kind < 5:
            check_result(METHODS[kind], rest)
        elif kind == 5:
            check_error("resources/read", rest)
        else:
            checks[kind - 6](rest)
    except RemoteProtocolError as error:
        assert error.message.startswith("got ")
