"""A plan is checked as a whole when an engine is made: each problem is named with its path, and all are named."""

from __future__ import annotations

import random
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.name_filter import NameFilter
from isthmus.core.base.plan import (
    ArtifactProducer,
    AutoFiles,
    Kind,
    LocatorMode,
    Offer,
    OutputLocator,
    Plan,
    ServerPlan,
    SharedFolder,
    TaskRules,
    UploadConsumer,
)
from isthmus.core.base.plan_check import PROBLEMS_MAX
from isthmus.core.bulk import BulkEngine
from isthmus.core.engine import Engine
from isthmus.core.trace import Recorder

KEY = b"k" * 16
STORED = (
    "need a storage: pass has_storage=True to the engine if the driver answers orders that have a ticket, or plan none"
)


def server(**fields: Any) -> ServerPlan:
    return ServerPlan(**{"id": "s", "kind": Kind.PIPE} | fields)


def problems(plan: Any, *, has_storage: bool = True) -> list[str]:
    """Returns the lines of the refusal, after the first; none if an engine is made of the plan."""
    try:
        Engine(plan, entropy=random.Random(1).randbytes, unix_at_zero=0.0, has_storage=has_storage)
    except LocalProtocolError as error:
        first, *lines = str(error).splitlines()
        assert first == "the plan cannot be used:"
        assert lines
        return lines
    return []


@each_row(
    ("fields", "problem"),
    [
        ({"id": ""}, "id: got the text '', expected a text that is not empty"),
        ({"id": 5}, "id: got 5, expected a text that is not empty"),
        ({"kind": "pipe"}, "kind: got the text 'pipe', expected one of Kind.PIPE, Kind.SOCKET, Kind.HTTP"),
        ({"kind": Offer.OWN}, "kind: got Offer.OWN, expected one of Kind.PIPE, Kind.SOCKET, Kind.HTTP"),
        ({"tools": None}, "tools: got None, expected a NameFilter"),
        ({"tools": NameFilter(exclude="secret")}, "tools.exclude: got the text 'secret', expected a sequence of texts"),
        ({"prompts": NameFilter(include=("a", 1))}, "prompts.include[1]: got 1, expected a text"),
        ({"resources": NameFilter(exclude={"a"})}, "resources.exclude: got a set, expected a sequence of texts"),
        ({"session_retries": -1}, "session_retries: got -1, expected a whole number from 0"),
        ({"session_retries": "1"}, "session_retries: got the text '1', expected a whole number from 0"),
        ({"spares": True}, "spares: got True, expected a whole number from 0"),
        ({"start_timeout_s": "3"}, "start_timeout_s: got the text '3', expected a number above 0 or None"),
        ({"start_timeout_s": 0}, "start_timeout_s: got 0, expected a number above 0 or None"),
        ({"reply_timeout_s": -1.5}, "reply_timeout_s: got -1.5, expected a number above 0 or None"),
        ({"reply_timeout_s": float("nan")}, "reply_timeout_s: got nan, expected a number above 0 or None"),
        ({"idle_stop_s": float("inf")}, "idle_stop_s: got inf, expected a number above 0 or None"),
        ({"tool_time_limits": (("x", -1),)}, "tool_time_limits[0][1]: got -1, expected a number above 0"),
        (
            {"tool_time_limits": ("x",)},
            "tool_time_limits[0]: got the text 'x', expected a sequence of 2: a text and a number above 0",
        ),
        ({"era": "stateless"}, "era: got the text 'stateless', expected one of Era.HANDSHAKE, Era.STATELESS or None"),
        ({"stage": "there"}, "stage: got the text 'there', expected one of 'in', 'out', 'ws'"),
        ({"may_fall_back": "no"}, "may_fall_back: got the text 'no', expected True or False"),
        ({"shared": (("/a", "/b"),)}, "shared[0]: got a tuple, expected a SharedFolder"),
        ({"shared": (SharedFolder("/a", None),)}, "shared[0].there: got None, expected a text"),  # type: ignore[arg-type]
        ({"tasks": Offer.OWN}, "tasks: got Offer.OWN, expected a TaskRules"),
        (
            {"tasks": TaskRules(tools=(("t", "own"),))},  # type: ignore[arg-type]
            "tasks.tools[0][1]: got the text 'own', expected one of Offer.AUTO, Offer.ALWAYS, Offer.OWN, Offer.NEVER",
        ),
        (
            {"consumers": (UploadConsumer(tools=("t",), file_path_argument=("a", 1)),)},  # type: ignore[arg-type]
            "consumers[0].file_path_argument[1]: got 1, expected a text",
        ),
        (
            {"consumers": (UploadConsumer(tools="t", file_path_argument="a"),)},  # type: ignore[arg-type]
            "consumers[0].tools: got the text 't', expected a sequence of texts",
        ),
        ({"auto_files": True}, "auto_files: got True, expected an AutoFiles or None"),
        ({"spares": 2, "kind": Kind.HTTP}, "spares: got 2 for Kind.HTTP, expected 0: only processes are kept ready"),
        (
            {"may_fall_back": True},
            "may_fall_back: got True for Kind.PIPE, expected False: only Kind.HTTP falls back to HTTP+SSE",
        ),
    ],
)
def test_a_field_of_a_server_is_refused_by_its_path(fields: dict[str, Any], problem: str) -> None:
    assert problems(Plan(servers=(server(id="other"), server(**fields)), link_keys=(KEY,))) == [f"servers[1].{problem}"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "plan: got None, expected a Plan"),
        (server(), "plan: got a ServerPlan, expected a Plan"),
        (Plan(servers=server()), "servers: got a ServerPlan, expected a sequence of ServerPlan"),  # type: ignore[arg-type]
        (Plan(servers=("s",)), "servers[0]: got the text 's', expected a ServerPlan"),  # type: ignore[arg-type]
        (
            Plan(servers=(server(), server(id="t"), server())),
            "servers[2].id: got the text 's', which servers[0] has already, expected another",
        ),
        (Plan(servers=(), name=""), "name: got the text '', expected a text that is not empty"),
        (Plan(servers=(), version=1), "version: got 1, expected a text"),  # type: ignore[arg-type]
        (Plan(servers=(), state_keys=b"k" * 32), "state_keys: got 32 bytes, expected a sequence of at least 16 bytes"),  # type: ignore[arg-type]
        (Plan(servers=(), state_keys=(KEY, b"k" * 15)), "state_keys[1]: got 15 bytes, expected at least 16 bytes"),
        (Plan(servers=(), link_keys=("a secret",)), "link_keys[0]: got a text, expected at least 16 bytes"),  # type: ignore[arg-type]
        (
            Plan(servers=(server(auto_files=AutoFiles()),)),
            "link_keys: got none for servers with files, expected at least one of 16 secret bytes",
        ),
    ],
)
def test_a_field_of_a_plan_is_refused_by_its_path(plan: Any, problem: str) -> None:
    assert problems(plan) == [problem]


def test_an_expression_that_cannot_be_used_is_refused_when_the_engine_is_made() -> None:
    """Otherwise the first list of tools would fail."""
    locator = OutputLocator(mode=LocatorMode.REGEX, output_path_regexes=("(?P<path>x)", "[z-a]"))
    plan = Plan(
        servers=(
            server(tools=NameFilter(exclude_regexes=("a.*", "("))),
            server(id="t", producers=(ArtifactProducer(tools=("*",), output_locator=locator),)),
        ),
        link_keys=(KEY,),
    )
    one, other = problems(plan)
    assert one.startswith("servers[0].tools.exclude_regexes[1]: got the text '(': expected ")
    assert other.startswith("servers[1].producers[0].output_locator.output_path_regexes[1]: got the text '[z-a]': ")


def test_all_problems_are_listed_within_a_bound() -> None:
    plan = Plan(
        servers=(server(spares=-1, tools=NameFilter(exclude="x" * 100)), server(id="t"), server(id="t")),  # type: ignore[arg-type]
        stores_events="yes",  # type: ignore[arg-type]
    )
    assert [line.partition(":")[0] for line in problems(plan, has_storage=False)] == [
        "servers[0].spares",
        "servers[0].tools.exclude",
        "stores_events",
        "servers[2].id",
    ]
    assert max(map(len, problems(plan))) < 200
    many = problems(Plan(servers=(server(spares=-1),) * (PROBLEMS_MAX + 3)))
    assert (len(many), many[-1]) == (PROBLEMS_MAX + 1, "and 3 more")


@pytest.mark.parametrize("sequence", [tuple, list])
def test_sequences_are_tuples_or_lists(sequence: type) -> None:
    tools = NameFilter(exclude=sequence(["secret"]))
    assert not problems(Plan(servers=sequence([server(tools=tools)]), state_keys=sequence([KEY])))


@each_row(
    ("asked", "problem"),
    [
        ({"tasks": TaskRules(offer=Offer.OWN)}, f"servers[0].tasks: tasks of server 's' {STORED}"),
        ({"tasks": TaskRules(offer=Offer.AUTO)}, f"servers[0].tasks: tasks of server 's' {STORED}"),
        ({"tasks": TaskRules(offer=Offer.ALWAYS)}, f"servers[0].tasks: tasks of server 's' {STORED}"),
        ({"tasks": TaskRules(tools=(("t", Offer.OWN),))}, f"servers[0].tasks: tasks of server 's' {STORED}"),
        (
            {"consumers": (UploadConsumer(tools=("t",), file_path_argument="a"),)},
            f"servers[0].consumers: files of server 's' {STORED}",
        ),
        ({"producers": (ArtifactProducer(tools=("t",)),)}, f"servers[0].producers: files of server 's' {STORED}"),
        ({"auto_files": AutoFiles()}, f"servers[0].auto_files: files of server 's' {STORED}"),
        ({}, ""),
        ({"tasks": TaskRules()}, ""),
        ({"tasks": TaskRules(tools=(("t", Offer.NEVER),), strict=True)}, ""),
    ],
)
@each_row("make", [Engine, BulkEngine, Recorder])
def test_tasks_and_files_need_a_driver_with_a_storage(make: type[Engine], asked: dict[str, Any], problem: str) -> None:
    plan = Plan(servers=(server(**asked),), link_keys=(KEY,))
    more: dict[str, Any] = {"write": [].append} if make is Recorder else {}
    if problem:
        with pytest.raises(LocalProtocolError) as refused:
            make(plan, entropy=bytes, unix_at_zero=0.0, **more)
        assert str(refused.value).splitlines()[1:] == [problem]
    else:
        make(plan, entropy=bytes, unix_at_zero=0.0, **more)
    make(plan, entropy=bytes, unix_at_zero=0.0, has_storage=True, **more)


def test_stored_events_need_a_driver_with_a_storage() -> None:
    plan = Plan(servers=(), stores_events=True)
    assert problems(plan, has_storage=False) == [f"stores_events: stored events {STORED}"]
    assert not problems(plan)
