"""Whatever servers say of their tools and results, and clients in arguments, files are found in it or are not.

The first byte says what the rest is, which is JSON: a page of `tools/list`, a call's result, its params, or an
introduction. Accepted outcomes: `ArgumentProblem`, for people, or what is said of files; what is added to a list or an
introduction stands beside what was there; what is put into params changes nothing else there.
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
    deliver,
    find_all_references,
    place_output,
    requested_filename,
)
from isthmus.core.files.calls.claims import argument_paths, claims_of, contents_of
from isthmus.core.files.calls.offers import (
    announced_problem,
    extend_capabilities,
    extend_resources,
    extend_tools,
    helper_name,
)
from isthmus.core.files.calls.tool_hints import LABEL_MAX_CHARS, read_hints, says_uri, takes_files
from isthmus.core.jsonrpc.append import readable_elements, readable_members
from isthmus.core.jsonrpc.splice import take

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
        assert isinstance(takes_files(tool), bool)
    for server in SERVERS:
        said = extend_tools(data, server, is_first_page=True, offers_uploads=True)
        if said != data:
            tools = parse(said)["tools"]
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
    found = find_all_references(data, CONSUMERS, helper="h")
    placed = deliver(data, [(at, "/w/x") for at in found])
    assert not found or find_all_references(placed, CONSUMERS[1:], helper="h") == []
    after = parse(place_output(data, "out.path", "/w/y"))
    assert after["arguments"]["out"]["path"] == "/w/y"
    assert {key for key in after if key != "arguments"} == {key for key in parse(data) if key != "arguments"}


def check_introduction(data: bytes) -> None:
    for server in SERVERS:
        said = extend_capabilities(data, server, offers_uploads=True, offers_artifacts=True)
        assert said == data or {"tools", "resources"} <= set(parse(said)["capabilities"])
    said = extend_resources(data, [b'{"uri":"a:b"}'])
    assert said == data or parse(said)["resources"][-1] == {"uri": "a:b"}


def test_one_input(data: bytes) -> None:
    kind, rest = (data[0] if data else 0) % 4, data[1:]
    try:
        value = parse(rest)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return  # what is no object does not come so far
    try:
        (check_tools, check_result, check_params, check_introduction)[kind](rest)
    except ArgumentProblem as problem:
        assert str(problem)
