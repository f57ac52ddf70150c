"""Tests of the counters: their labels are bounded, and belong to the server that has the tool."""

from __future__ import annotations

from typing import Any

from isthmus.app.admin.metrics import exposition
from isthmus.app.telemetry.counters import METHODS, OTHER, TOOLS_MAX, WAITING_MAX, Counters
from isthmus.app.telemetry.histogram import CALLS_S, STEPS_S, Histogram
from isthmus.app.telemetry.measurements import Measurements
from isthmus.app.telemetry.store_times import StoreTimes
from isthmus.core import oracle
from isthmus.core.base.governance import Override, Shown
from isthmus.core.base.plan import Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.base.telemetry import Outcome, RequestAnswered, RequestEnded, ToolsListed
from isthmus.core.oracle.observations import Role
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str | None, ...], float]


def counters(*servers: ServerPlan, profiles: tuple[Profile, ...] = ()) -> Counters:
    return Counters(servers or (ServerPlan(id="a", kind=Kind.PIPE),), profiles)


def ended(target: str, *, server: str = "a", method: str = "tools/call", **rest: Any) -> RequestEnded:
    fields = {"outcome": Outcome.RESULT, "duration_s": 0.02, **rest}
    return RequestEnded(server, "sid", "client", "2025-11-25", "", False, (1, 0), method, target, **fields)


def samples(found: Counters, name: str, *labels: str) -> Samples:
    """The values of the samples of this name that are not 0, by the values of these labels."""
    measurements = Measurements(found, StoreTimes(), Histogram(STEPS_S))
    page = exposition("1", (), (), 0.0, measurements=measurements).decode()
    every = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {tuple(map(one.labels.get, labels)): one.value for one in every if one.name == name and one.value}


def calls(found: Counters) -> Samples:
    return samples(found, "isthmus_tool_calls_total", "server", "tool", "outcome")


def test_the_methods_are_those_that_clients_may_send() -> None:
    uses = oracle.METHODS.items()
    assert {method for method, use in uses if use.is_request and Role.CLIENT in use.senders} == METHODS


def test_unknown_methods_and_tools_share_a_label() -> None:
    found = counters()
    found.receive(ToolsListed("a", ("echo",)))
    for number in range(3):
        found.receive(ended("", method=f"vendor/{number}"))
        found.receive(ended(f"unlisted {number}", outcome=Outcome.ERROR))
    found.receive(ended("echo", outcome=Outcome.TOOL_ERROR))
    assert calls(found) == {("a", OTHER, "error"): 3, ("a", "echo", "tool_error"): 1}
    assert samples(found, "isthmus_requests_total", "server", "method", "outcome") == {
        ("a", OTHER, "result"): 3,
        ("a", "tools/call", "error"): 3,
        ("a", "tools/call", "tool_error"): 1,
    }


def test_a_server_has_so_many_tools_that_are_counted_apart() -> None:
    """However it lists them: a tool that is called like the others' label counts among them."""
    found = counters()
    for page in range(3):
        found.receive(ToolsListed("a", (OTHER, *(f"{page} {number}" for number in range(TOOLS_MAX // 2)))))
    found.receive(ended("2 0"))
    found.receive(ended(OTHER))
    assert calls(found) == {("a", OTHER, "result"): 2}
    assert len(found.tools) == TOOLS_MAX + 1


def test_any_name_is_a_label() -> None:
    names = ('"', "\\", "\n", 'a"} 7\nisthmus_info 9', "\ud800", "x" * 10_240, "ü", " ", "")
    found = counters()
    found.receive(ToolsListed("a", names))
    for name in names:
        found.receive(ended(name))
    labels = {tool for _, tool, _ in calls(found)}
    assert labels == {name.encode("utf-8", "backslashreplace").decode() for name in names}


def test_a_tool_counts_for_the_server_that_has_it_whatever_it_is_called() -> None:
    """A profile puts an alias before the name, and an override gives it another one."""
    renamed = ServerPlan(id="b", kind=Kind.PIPE, shown=Shown(overrides=(Override(tool="raw", rename="shown"),)))
    profile = Profile(id="all", servers=(ProfileServer(id="a"), ProfileServer(id="b", alias="bee")), has_search=True)
    found = counters(ServerPlan(id="a", kind=Kind.PIPE), renamed, profiles=(profile,))
    found.receive(ToolsListed("a", ("with.dots",)))
    found.receive(ToolsListed("b", ("raw",)))
    found.count()
    exposed = next(name for endpoint, name in found._by_use if endpoint == "all" and name.startswith("a__with-dots-"))
    for server, name in (("b", "shown"), ("b", "raw"), ("all", "bee__shown"), ("all", exposed), ("all", "call_tool")):
        found.receive(ended(name, server=server))
    assert calls(found) == {
        ("b", "raw", "result"): 2,
        ("b", OTHER, "result"): 1,
        ("a", "with.dots", "result"): 1,
        ("all", "call_tool", "result"): 1,
    }


def test_durations_are_in_their_buckets() -> None:
    found = counters()
    for duration_s in (0.0, 0.005, 0.006, 299.0, 301.0):
        found.receive(ended("", method="ping", duration_s=duration_s))
        found.receive(RequestAnswered((1, 0), "a", "ping", duration_s))
    expected = {str(bound_s): {0.005: 2, 300.0: 4}.get(bound_s, 3) for bound_s in CALLS_S} | {"+Inf": 5}
    for name in ("isthmus_request_duration_seconds", "isthmus_upstream_duration_seconds"):
        buckets = samples(found, f"{name}_bucket", "server", "le")
        assert buckets == {("a", bound_s): count for bound_s, count in expected.items()}
        assert samples(found, f"{name}_sum", "server") == {("a",): 600.011}


def test_events_wait_to_be_counted_but_not_many() -> None:
    found = counters()
    for _ in range(WAITING_MAX - 1):
        found.receive(ended("x"))
    assert not found.requests
    found.receive(ended("x"))
    assert found.requests["a", "tools/call"].outcomes["result"] == WAITING_MAX
