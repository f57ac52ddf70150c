"""Tests of the metrics page of a running gateway: its numbers are those of the calls that a client has made."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml
from access_scenes import server
from http_caller import PATIENCE_S, Caller, operator, requested
from isthmus.app.admin.metrics import exposition
from isthmus.app.config.profile_settings import Profile, ProfileServer
from isthmus.app.config.settings import Core, Settings
from isthmus.app.gateway import Gateway, running
from isthmus.core.base.telemetry import Detail
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.anyio

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
SECRET: Final = "PLANTED-7f3a"
Labels = dict[str, str]


async def page_of(found: Gateway) -> str:
    async with requested(f"{found.base_url}/metrics", "GET", operator(found)) as response:
        assert response.status == 200
        return (await response.body()).decode()


class Page:
    """The samples of a metrics page."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        assert len({family.name for family in families}) == len(families), "each family stands once"
        self.samples = [sample for family in families for sample in family.samples]
        self.names = {sample.name for sample in self.samples} | {family.name for family in families}

    def values(self, name: str, *labels: str, **given: str) -> dict[tuple[str, ...], float]:
        """The values that are not 0, by these labels, of the samples that have the given ones."""
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for sample in self.samples
            if sample.name == name and sample.value and given.items() <= sample.labels.items()
        }


SETTINGS: Final = Settings(
    core=Core(port=0, drain_seconds=5.0),
    servers=(server("out", "outcomes.py"), server("box")),
    profiles=(Profile(id="both", servers=(ProfileServer(id="out", alias="o"), ProfileServer(id="box"))),),
)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_numbers_are_those_of_the_calls() -> None:
    """The official SDK calls tools of a server, and of two through a profile."""
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(SETTINGS, listen=True, is_lasting=False) as found:
            for id, prefix in (("out", ""), ("both", "o__")):
                async with (
                    streamable_http_client(f"{found.base_url}/mcp/{id}") as (receiving, sending, _),
                    ClientSession(receiving, sending) as client,
                ):
                    await client.initialize()
                    await client.list_tools()
                    for _ in range(3):
                        assert not (await client.call_tool(f"{prefix}well", {"a": SECRET})).isError
                    assert (await client.call_tool(f"{prefix}badly", {})).isError
                    with pytest.raises(McpError):
                        await client.call_tool(f"{prefix}not", {})
                    if id == "both":
                        await client.call_tool("box__echo", {"text": "a"})
            async with requested(f"{found.base_url}/mcp/{SECRET}", "POST", {}, b"{}") as response:
                assert response.status == 404
            await page_of(found)
            page = Page(text := await page_of(found))
    assert page.values("isthmus_tool_calls_total", "server", "tool", "outcome") == {
        ("out", "well", "result"): 6,
        ("out", "badly", "tool_error"): 2,
        ("out", "not", "error"): 2,
        ("box", "echo", "result"): 1,
    }
    calls = page.values("isthmus_requests_total", "server", "outcome", method="tools/call")
    assert calls == {
        ("out", "result"): 3,
        ("out", "tool_error"): 1,
        ("out", "error"): 1,
        ("both", "result"): 4,
        ("both", "tool_error"): 1,
        ("both", "error"): 1,
    }
    assert page.values("isthmus_requests_total", "server", "outcome", method="initialize") == {
        ("out", "result"): 1,
        ("both", "result"): 1,
    }
    counts = page.values("isthmus_request_duration_seconds_count", "server", method="tools/call")
    assert counts == {("out",): 5, ("both",): 6}
    ended = page.values("isthmus_request_duration_seconds_bucket", "server", method="tools/call", le="+Inf")
    assert ended == counts
    assert page.values("isthmus_sessions_started_total", "server") == {("out",): 1, ("both",): 1}
    assert page.values("isthmus_upstream_duration_seconds_count", "server")["box",] >= 1
    statuses = page.values("isthmus_http_responses_total", "route", "status")
    assert statuses["pages", "200"] == 1, "the page before this one"
    assert statuses["mcp", "404"] == 1
    assert statuses["mcp", "200"] >= sum(calls.values())
    assert SECRET not in text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_whatever_clients_send_the_page_can_be_read_and_does_not_grow(anyio_backend: str) -> None:
    names = (SECRET, "x" * 10_240, 'a"} 1\nb', "\\", "\ud800", "\x00", "")
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(SETTINGS, listen=True, is_lasting=False) as found:
            caller = Caller(f"{found.base_url}/mcp/box", {"x-secret": SECRET})
            await caller.initialize()
            await caller.call("echo", text=SECRET)
            for name in names:
                await caller.request("tools/call", {"name": name, "arguments": {SECRET: SECRET}})
            size = len(Page(await page_of(found)).samples)
            for number, name in enumerate(names):
                await caller.request(f"{SECRET}/{number}", {"uri": SECRET})
                await caller.request("tools/call", {"name": f"{name}2", "arguments": {}})
            await page_of(found)
            page = Page(text := await page_of(found))
    assert page.values("isthmus_requests_total", "method", server="box", method="other") == {("other",): len(names)}
    calls = page.values("isthmus_tool_calls_total", "tool", server="box", outcome="result")
    assert calls == {("other",): 2 * len(names) + 1}, "no client has listed the tools"
    assert len(page.samples) < size + 50
    assert SECRET not in text
    assert "x" * 80 not in text


async def test_nothing_is_counted_where_nobody_can_read_it() -> None:
    async with running(Settings(servers=SETTINGS.servers), listen=False, is_lasting=False) as found:
        assert found.plan.telemetry is Detail.NONE


async def test_a_listener_that_fails_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.app.telemetry.counters.Counters.receive", lambda self, event: 1 / 0)
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(SETTINGS, listen=True, is_lasting=False) as found:
            caller = Caller(f"{found.base_url}/mcp/box")
            await caller.initialize()
            assert await caller.call("echo", text="a") == "toolbox says a"
            page = Page(await page_of(found))
    assert page.values("isthmus_events_dropped_total", reason="defect")[()] >= 2


# --- Examples -------------------------------------------------------------------------------------------------------


def names_in(expressions: list[str]) -> set[str]:
    """The metrics in expressions of PromQL."""
    return {name for text in expressions for name in re.findall(r"\b(?:isthmus|process)_[a-z_]+", text)}


def read_dashboard() -> tuple[dict[str, Any], list[str]]:
    """Returns the dashboard, and the expressions in its panels."""
    dashboard = json.loads((EXAMPLES / "grafana/dashboard.json").read_text(encoding="utf-8"))
    return dashboard, [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


async def test_the_examples_name_metrics_that_there_are() -> None:
    dashboard, shown = read_dashboard()
    asked = [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    alerts = yaml.safe_load((EXAMPLES / "prometheus/alerts.yaml").read_text(encoding="utf-8"))
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert all(rule["annotations"]["runbook"] for rule in rules)
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(SETTINGS, listen=True, is_lasting=False) as found:
            caller = Caller(f"{found.base_url}/mcp/box")
            await caller.initialize()
            await caller.call("echo", text="a")
            await page_of(found)
            page = Page(await page_of(found))
    replicas = Page(exposition("1", (), (), 0.0, replicas=2).decode()).names  # there are none without shared stores
    named = names_in([*shown, *asked, *(rule["expr"] for rule in rules)])
    assert len(named) > 15
    assert named <= page.names | {name for name in replicas if "replica" in name}


promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def run_promtool(*options: str, given: str = "") -> str:
    found = subprocess.run(
        ["promtool", *options],
        cwd=EXAMPLES / "prometheus",
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


@promtool
def test_the_alerts_are_rules_and_fire_when_they_should() -> None:
    run_promtool("check", "rules", "alerts.yaml")
    run_promtool("test", "rules", "alerts_test.yaml")


@promtool
def test_prometheus_can_read_what_the_dashboard_asks(tmp_path: Path) -> None:
    _, shown = read_dashboard()
    asked = [text.replace("$__rate_interval", "5m") for text in shown]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run_promtool("check", "rules", str(tmp_path / "rules.yaml"))


@promtool
async def test_prometheus_finds_no_fault_with_the_page() -> None:
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(SETTINGS, listen=True, is_lasting=False) as found:
            caller = Caller(f"{found.base_url}/mcp/box")
            await caller.initialize()
            await caller.request("tools/list")
            await caller.call("echo", text="a")
            text = await page_of(found)
    assert run_promtool("check", "metrics", given=text) == ""
