"""Tests of the benchmark: its arithmetic, its tables, one run of a few calls, and that a wrong answer is seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
sys.path.insert(0, str(BENCH))

import interpreter  # noqa: E402
import programs  # noqa: E402
import relayed_calls  # noqa: E402
import replica_calls  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import subjects  # noqa: E402
import targets  # noqa: E402
import workloads  # noqa: E402

compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def measured(cpu_us: float, p50_us: float = 500) -> targets.Figures:
    names = ("calls", "wall_s", "p99_us", "rss_kb", "peak_kb", "after_kb", "growth_kb", "calls_per_s")
    return dict.fromkeys(names, 1024.0) | {"cpu_us": cpu_us, "kernel_us": cpu_us / 4, "p50_us": p50_us}


def test_every_target_names_what_is_measured() -> None:
    """A target for a workload, a subject or a gate that no run has could never be judged."""
    known = {workload.name: workload.subjects for workload in workloads.WORKLOADS}
    known |= {"start": ("isthmus",), "file_upload": ("isthmus", "nginx"), "file_download": ("isthmus", "nginx")}
    known |= {"relay_64m": relayed_calls.SUBJECTS, "replicas_c16": replica_calls.NAMES}
    for target in targets.TARGETS:
        assert target.subject in known[target.workload], target
        assert target.figure in report.UNITS, target
        for gate in target.gates:
            assert gate.subject in known[gate.workload or target.workload], gate


def test_every_subject_can_be_started() -> None:
    named = {subject for workload in workloads.WORKLOADS for subject in workload.subjects}
    assert named - {"direct"} == set(subjects.STARTERS)


def test_bounds_mean_the_same_on_every_machine() -> None:
    """Times are judged within one run, those of calls that are read never against a proxy in C; sizes have limits."""
    for target in targets.TARGETS:
        assert (target.limit is None) != (target.gates == ()), target
        is_of_all_machines = target.figure.endswith("_kb") or target.figure == "idle_cpu_us_per_s"
        assert (target.limit is not None) == is_of_all_machines, target
        if target.figure == "cpu_us" and target.subject != "isthmus-relay":
            assert not {gate.subject for gate in target.gates} & set(workloads.BYTES), target
    assert {target.figure for target in targets.TARGETS} == set(report.UNITS)


@pytest.mark.parametrize(("floor", "held"), [(20.0, [True, True, False, None]), (19.0, [False, True, False, None])])
def test_targets_are_judged(floor: float, held: list[bool | None]) -> None:
    """A figure is held at its bound, lost beyond it, and not judged if what it is divided by is not there."""
    rows = {"isthmus": measured(90), "floor": measured(floor), "floor-h11": measured(180)}
    rows["fastmcp-reused"] = measured(5000)
    verdicts = targets.judge({"http_c16": rows})
    verdicts = [v for v in verdicts if v.target.workload == "http_c16" and v.target.subject == "isthmus"]
    assert [verdict.is_held for verdict in verdicts] == held
    assert [verdict.against for verdict in verdicts] == ["floor", "floor-h11", "fastmcp-reused", "fastmcp"]
    assert verdicts[0].value == 90 / floor


def test_a_bound_may_be_on_a_ratio_to_another_workload() -> None:
    results = {"http_c16": {"isthmus": measured(100)}, "legacy_to_modern_c16": {"isthmus": measured(141)}}
    [verdict] = [v for v in targets.judge(results) if v.target.workload == "legacy_to_modern_c16" and v.value]
    assert (verdict.against, verdict.value, verdict.is_held) == ("isthmus in http_c16", 1.41, False)


def test_a_limit_is_judged_by_the_figure_itself() -> None:
    results = {"http_idle_1k": {"isthmus": measured(100) | {"idle_kb": 12.5, "idle_cpu_us_per_s": 200.0}}}
    verdicts = [verdict for verdict in targets.judge(results) if verdict.target.workload == "http_idle_1k"]
    assert [(verdict.against, verdict.is_held) for verdict in verdicts] == [(None, False), (None, True)]


def test_the_page_has_the_bounds_of_the_code() -> None:
    page = (BENCH.parent / "docs/performance.md").read_text(encoding="utf-8")
    table = page.split("| workload | through | figure | measured | bound | held |\n")[1].split("\n\n")[0]
    shown = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    bounds = [report.verdict_row(verdict) for verdict in targets.judge({})]
    assert [(*row[:3], row[4]) for row in shown] == [(*row[:3], row[4]) for row in bounds]


def test_a_lower_bound_is_judged_as_one() -> None:
    results = {"file_upload": {"isthmus": {"mib_per_s": 49.0}, "nginx": {"mib_per_s": 100.0}}}
    verdicts = [verdict for verdict in targets.judge(results) if verdict.target.figure == "mib_per_s"]
    assert [verdict.is_held for verdict in verdicts] == [False, None]  # there is no download


def test_medians_and_the_overhead_over_the_direct_way() -> None:
    rounds = [{"direct": measured(0, 100), "nginx": measured(40, 100 + added)} for added in (90, 10, 20)]
    for row in rounds:
        run.add_differences(row)
    figures = run.medians([row["nginx"] for row in rounds])
    assert figures["added_p50_us"] == 20 and figures["p50_us"] == 120


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, 1, "–"),
        (0, 1, "0"),
        (0.034, 1, "0.03"),
        (3.5, 1, "3.5"),
        (37.04, 1, "37"),
        (130, 1, "130"),
        (1234.5, 1, "1,234"),
        (400, 1000, "0.4"),
    ],
)
def test_numbers_are_readable(value: float | None, unit: float, text: str) -> None:
    assert report.number(value, unit) == text


def test_the_tables_of_a_run() -> None:
    rows = {"direct": measured(0, 100), "isthmus": measured(120), "floor": measured(60), "nginx": measured(40)}
    run.add_differences(rows)
    given = {
        "python": {"version": "CPython 3.11.2", "from": "/usr", "says_optimised": False, "loop_ms": 7.78},
        "rounds": 1,
        "workloads": {"http_c16": rows},
        "absent": {"http_c16 haproxy": "not\nhere"},
    }
    text = report.render(given)
    assert "| http_c16 | isthmus | 120 | 30 | 2 | 3 | 0.5 | 0.4 |" in text
    assert "| http_c16 | isthmus | µs CPU | 2 | ≤ 4.5 × floor | yes |" in text
    assert "| http_c16 | isthmus | µs CPU | – | 480 × cheaper than fastmcp | not measured |" in text
    assert "- haproxy (http_c16): not here" in text
    assert text.startswith("CPython 3.11.2 of /usr, which does not say whether it was optimised;")
    assert "its calibration loop takes 7.8 ms. 1 rounds, medians.\n" in text
    assert text.endswith("Bounds held: 1; not held: 0; not measured: 4.\n")
    page = report.fill("# A\n<!-- measured figures -->\nold\n<!-- end of measured figures -->\nrest\n", text)
    assert text in page and "old" not in page and page.endswith("rest\n")
    with pytest.raises(ValueError, match="expected one part"):
        report.fill("# A\n", text)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations'"}, True),
        ({"CONFIG_ARGS": "'--prefix=/usr'", "PY_CORE_CFLAGS": "-O3 -fprofile-use -fprofile-correction"}, True),
        # the variable describes what could be
        ({"CONFIG_ARGS": "'--prefix=/usr'", "PGO_PROF_USE_FLAG": "-fprofile-use"}, False),
        ({"CONFIG_ARGS": None}, False),
    ],
)
def test_how_an_interpreter_was_built(variables: dict[str, str | None], expected: bool) -> None:
    assert interpreter.says_optimised(variables) is expected


def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"'python0\.1'"):
        interpreter.prepared("python0.1")


def test_a_failing_subject_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject that cannot be started or does not end is left out of one workload, and so are separate measurements
    that fail."""
    failures = iter([OSError("no such program"), subprocess.TimeoutExpired("it", 1), programs.Failed("it ended")])

    def fail(*arguments: object) -> subjects.Start:
        raise next(failures)

    monkeypatch.setitem(subjects.STARTERS, "floor", fail)
    monkeypatch.setattr(run, "measure_start", fail)
    monkeypatch.setattr(run, "measure_storage", lambda folder: {"record_save": {"memory": {"cpu_us": 1.0}}})
    monkeypatch.setattr(programs.Programs, "stub", lambda self, era: programs.Program(0, 0))
    tiny = [workloads.Workload(name, workloads.HTTP, ("floor",)) for name in ("one", "two")]
    with programs.Programs() as started:
        measuring = run.Run(started, seconds=0.05, calls_max=20)
        assert list(run.measured(measuring, tiny, 1)) == [("one", {}), ("two", {})]
        options = run.parser().parse_args(["--only", "st", "--rounds", "1"])
        assert [name for name, _ in run.measured_apart(measuring, options)] == ["record_save"]
    reasons = {"one floor": "no such program", "two floor": "Command 'it' timed out after 1 seconds"}
    assert measuring.absent == reasons | {"start isthmus": "it ended"}


@compiled
def test_a_call_costs_the_relay_something() -> None:
    programs.build()
    tiny = workloads.Workload("tiny", workloads.HTTP, ("direct", "floor", "isthmus-prefix-5"), sessions=2)
    with programs.Programs() as started:
        measuring = run.Run(started, seconds=0.05, calls_max=20)
        [(name, figures)] = run.measured(measuring, [tiny], 1)
    assert measuring.absent == {} and name == "tiny"
    assert figures["direct"]["cpu_us"] == 0 < figures["floor"]["cpu_us"]
    assert figures["floor"]["calls"] <= 20 and figures["floor"]["rss_kb"] > 1000
    assert figures["isthmus-prefix-5"]["cpu_us"] > 0  # it knows the tool by the name with the prefix alone


def test_clients_wait_until_a_program_says_that_it_is_ready() -> None:
    """A proxy may listen before it knows its servers."""
    counting = """
import http.server, sys
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d;" % Counter.count)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Counter).serve_forever()
"""
    port = programs.free_port()
    with programs.Programs() as started:
        started.listening([sys.executable, "-c", counting, str(port)], port, health=("/", "3;"))
        assert programs.says(port, "/", "4;")


@compiled
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_the_stub_speaks_the_revision_of_older_peers(revision: str) -> None:
    programs.build()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": revision}}
    command, line = programs.stub_command("legacy"), json.dumps(asked) + "\n"
    ran = subprocess.run(command, input=line, capture_output=True, text=True, timeout=10, check=True)
    assert json.loads(ran.stdout)["result"]["protocolVersion"] == revision


@compiled
def test_calls_show_tokens_that_the_proxy_takes() -> None:
    """Each run of the load generator goes on with the next tokens. One that is not taken ends the run."""
    programs.build()
    tiny = workloads.Workload("tiny", workloads.HTTP, ("isthmus-jwt-turns",), sessions=2)
    with programs.Programs() as started:
        measuring = run.Run(started, seconds=60, calls_max=20)  # so long that it is never enough to calibrate
        [(_, figures)] = run.measured(measuring, [tiny], 1)
        [file] = started.scratch.glob("*.tokens")
        assert measuring.absent == {} and figures["isthmus-jwt-turns"]["cpu_us"] > 0
        assert measuring._shown[str(file)] > 20
        file.write_text("a.wrong.token\n")
        [(_, figures)] = run.measured(measuring, [tiny], 1)
    assert figures == {} and "401" in measuring.absent["tiny isthmus-jwt-turns"]


@compiled
def test_calls_are_passed_on_between_workers() -> None:
    """Each worker has half of the sessions. A session that is at no worker cannot be crossed with others."""
    programs.build()
    with programs.Programs() as started:
        url = f"http://127.0.0.1:{started.stub('legacy').port}/mcp"
        subject = replica_calls.SUBJECTS["isthmus-workers"](started, url)
        assert len(subject.pids) == 3
        for options in ((), ("--crossed",)):
            assert replica_calls.measure(subject, 64, *options)["cpu_us"] > 0
        one = replica_calls.SUBJECTS["isthmus-served"](started, url)
        with pytest.raises(programs.Failed, match="a session id without a tag"):
            replica_calls.measure(one, 64, "--crossed")


def load(*arguments: str, server: str) -> subprocess.CompletedProcess[str]:
    """Runs the load generator on a server that is a line of shell."""
    command = [str(programs.BUILD / "load"), "stdio", "--timeout-s", "5", *arguments, "--", "sh", "-c", server]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)


@compiled
@pytest.mark.parametrize(
    ("spoilt", "seen"),
    [
        ("", ""),
        ("s/|xx/|x/", "a result of another size"),
        ("s/m10|/m12|/", "not the result of its call"),
        ('s/"id":10,/"id":12,/', "the reply to another request"),
        ('/"progress":2,/d', "progress out of order"),
        ('/"progress":3,/d', "progress notifications missing"),
        ('s/"result":{"c/"error":{"c/', "an error"),
    ],
)
def test_the_load_generator_sees_what_is_wrong(spoilt: str, seen: str) -> None:
    """A proxy that loses, repeats, reorders or spoils messages is reported."""
    programs.build()
    ran = load(
        "--sessions", "2", "--calls", "20", "--events", "3", server=f"{programs.BUILD}/stub stdio | sed -u '{spoilt}'"
    )
    if seen:
        assert ran.returncode == 1 and seen in ran.stderr
    else:
        assert ran.returncode == 0 and json.loads(ran.stdout)["calls"] == 20
