"""Servers list any tools and return any results, clients send any arguments: files in them are found, or refused.

The first byte says what the rest is, which is JSON: a page of `tools/list`, the result of a call, its params, or the
result of a handshake. Accepted outcomes: `ArgumentProblem`, with a text; or the files that are named. Additions to a
list or to the result of a handshake keep the members that were there, and replacing a value in params changes no other.
"""

from __future__ import annotations

import json
from typing import Any, Final

from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    OutputLocator,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.files.calls.arguments import (
    ArgumentProblem,
    deliveries,
    find_references,
    place_output,
    requested_filename,
)
from isthmus.core.files.calls.claims import argument_paths, claims_of, contents_of
from isthmus.core.files.calls.file_arguments import file_arguments
from isthmus.core.files.calls.offers import (
    announced_problem,
    extend_capabilities,
    extend_resources,
    extend_tools,
    helper_name,
)
from isthmus.core.files.calls.tool_hints import LABEL_MAX_CHARS, read_hints, says_uri
from isthmus.core.jsonrpc.append import readable_elements, readable_members
from isthmus.core.jsonrpc.splice import splice, take

CONSUMERS: Final = (
    UploadConsumer(tools=("eat",), file_path_argument=("path", "all[*].p")),
    UploadConsumer(tools=("eat",), file_path_argument="other", accept_other=True),
)
SERVERS: Final = (
    ServerPlan(id="adapted", kind=Kind.PIPE, consumers=CONSUMERS, producers=(ArtifactProducer(tools=("*",)),)),
    ServerPlan(id="auto", kind=Kind.PIPE, auto_files=AutoFiles()),
)
LOCATORS: Final = (
    OutputLocator(
        mode=(LocatorMode.STRUCTURED, LocatorMode.ARGUMENT, LocatorMode.REGEX, LocatorMode.EMBEDDED),
        output_path_key="files[*].path",
    ),
    OutputLocator(mode=(LocatorMode.RESOURCE_LINK, LocatorMode.REGEX), output_path_regexes=(r"saved to (\S+)",)),
    AutoFiles(),
)
LIMIT: Final = 4


def parse(data: bytes) -> Any:
    return json.loads(data.decode(), parse_int=str, parse_float=str)


def check_tools(data: bytes) -> None:
    for hint in read_hints(data).values():
        assert all(len(label) <= LABEL_MAX_CHARS for label in hint.verdicts)
        hint.wants_uri("path", "path")
    for tool in readable_elements(take(data, readable_members(data).get("tools"))):
        reads, writes = file_arguments(tool)
        assert set(reads).isdisjoint(writes)
    for server in SERVERS:
        extended = extend_tools(data, server, str, is_first_page=True, offers_uploads=True)
        if extended != data:
            tools = parse(extended)["tools"]
            names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
            assert names.count(helper_name(server.id)) == 1


def check_result(data: bytes) -> None:
    for rules in LOCATORS:
        claims_of(data, rules, arguments=data, allocated="/w/a", limit=LIMIT)
        assert len(argument_paths(data, (), LIMIT)) <= LIMIT
        assert len(argument_paths(data, ("files[*].path",), LIMIT)) <= LIMIT
    for source in contents_of(data):
        assert source.filename and "/" not in source.filename
    assert isinstance(says_uri(data, ("/w/a.png",)), bool)


def check_params(data: bytes) -> None:
    announced_problem(data, 1000)
    requested_filename(data, "out.path")
    found = find_references(data, CONSUMERS, how="call h")
    placed = splice(data, deliveries([(at, "/w/x") for at in found]))
    assert not found or find_references(placed, CONSUMERS[1:], how="call h") == []
    after = parse(place_output(data, "out.path", "/w/y"))
    assert after["arguments"]["out"]["path"] == "/w/y"
    assert {key for key in after if key != "arguments"} == {key for key in parse(data) if key != "arguments"}


def check_handshake(data: bytes) -> None:
    for server in SERVERS:
        extended = extend_capabilities(data, server, offers_uploads=True, offers_artifacts=True)
        assert extended == data or {"tools", "resources"} <= set(parse(extended)["capabilities"])
    extended = extend_resources(data, [b'{"uri":"a:b"}'])
    assert extended == data or parse(extended)["resources"][-1] == {"uri": "a:b"}


def test_one_input(data: bytes) -> None:
    kind, rest = (data[0] if data else 0) % 4, data[1:]
    try:
        value = parse(rest)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return  # these functions only get objects
    try:
        (check_tools, check_result, check_params, check_handshake)[kind](rest)
    except ArgumentProblem as problem:
        assert str(problem)
