"""Tests of `isthmus tasks`, from outside: output, exit codes, and the choice of a task by a prefix."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from command import Json
from command import run as run_apart
from isthmus.app import gateway as gateway_module
from isthmus.app.base.errors import Failed
from isthmus.app.base.sizes import format_size
from isthmus.app.cli import cli
from isthmus.app.commands import tasks
from isthmus.app.commands.http_client import Isthmus
from isthmus.app.config.settings import Core, Management, Server, Settings, Upstream
from isthmus.app.gateway import Gateway, running
from task_fakes import TaskEngine, task_status

DIG, DIP, DONE = "dddddddd11" + "0" * 22, "dddddddd22" + "0" * 22, "eeeeeeee33" + "0" * 22
TOKEN = "s3cret-t0ken"
ODD = "half way\x1b[31m \x7f\x85\xa0\nmore"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a gateway with three tasks, which runs in a thread beside the tests."""
    kept = [
        task_status(DIG, age_s=3700, left_s=7205, kind="proxied", message=ODD),
        task_status(DIP, server="b", status="input_required", era="stateless", principal="ann"),
        task_status(DONE, status="completed", size_bytes=5000, session="s" * 32),
    ]
    monkeypatch.setattr(gateway_module, "BulkEngine", TaskEngine)
    monkeypatch.setattr(TaskEngine, "kept", kept)
    monkeypatch.setattr(TaskEngine, "cancelled", [])
    servers = tuple(Server(id=id, upstream=Upstream(command=("/nonexistent",))) for id in ("a", "b"))
    settings = Settings(core=Core(port=0, management=Management(token=TOKEN)), servers=servers)
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(running(settings, listen=True, is_lasting=False)) as gateway:
            assert isinstance(gateway, Gateway)
            yield gateway.base_url


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs `isthmus tasks` in this process: exit code, stdout, stderr."""
    logger = logging.getLogger("isthmus")
    before = (logger.handlers[:], logger.level, logger.propagate)

    def call(*arguments: str, token: str = TOKEN) -> tuple[int, str, str]:
        monkeypatch.setenv("ISTHMUS_TOKEN", token)
        with pytest.raises(SystemExit) as exited:
            cli.main(("tasks", *arguments))
        assert isinstance(exited.value.code, int)
        captured = capsys.readouterr()
        return exited.value.code, captured.out.rstrip(), captured.err.strip()

    yield call
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


def rows(out: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in out.splitlines()]


def test_the_table_shows_all_or_some(url: str, run: Run) -> None:
    code, out, err = run("--url", url)
    assert (code, err) == (0, "")
    heads, dig, dip, last_row = rows(out)
    assert heads == ["ID", "SERVER", "TOOL", "STATUS", "KIND", "AGE", "EXPIRES IN", "SIZE"]
    assert dig[:5] + dig[7:] == [DIG, "a", "dig", "working", "proxied", "-"]
    assert re.fullmatch(r"1h [12]m", dig[5]) and dig[6].startswith(("2h 0m", "1h 59m"))
    assert dip[:5] == [DIP, "b", "dig", "input_required", "local"]
    assert last_row[3:5] + last_row[7:] == ["completed", "local", "4.9 KiB"]

    assert [row[0] for row in rows(run("list", "--server", "a", "--url", url)[1])[1:]] == [DIG, DONE]
    assert [row[0] for row in rows(run("--status", "input_required", "--url", url)[1])[1:]] == [DIP]
    assert rows(run("list", "--server", "b", "--status", "failed", "--url", url)[1]) == [heads]
    code, out, _ = run("--url", url, "--json")
    assert (code, [task["id"] for task in json.loads(out)]) == (0, [DIG, DIP, DONE])
    complaint = "isthmus: got the server 'c', expected one of a, b"
    assert run("--url", url, "--server", "c") == (1, "", complaint)


def test_one_is_shown_whole(url: str, run: Run) -> None:
    code, out, err = run("--url", url, "show", DONE[:8])
    assert (code, err) == (0, "")
    shown = {row[0]: row[1] for row in rows(out)}
    assert (shown["id"], shown["status"], shown["session"], shown["size"]) == (DONE, "completed", "s" * 32, "4.9 KiB")
    assert (shown["principal"], shown["message"]) == ("-", "-")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00 \(1\d+s ago\)", shown["created"])
    assert shown["expires"].endswith(" left)")
    shown = {row[0]: row[1] for row in rows(run("show", DIG, "--url", url)[1])}
    assert shown["message"] == r"half way\x1b[31m \x7f\x85\xa0\nmore", "nothing that a terminal obeys"
    printed = run("show", "--json", DIG, "--url", url)[1]
    assert json.loads(printed)["message"] == ODD
    assert all(line.isprintable() for line in printed.split("\n"))
    shown = json.loads(run("show", "--json", DIP, "--url", url)[1])
    assert (shown["id"], shown["principal"], shown["era"]) == (DIP, "ann", "stateless")


def test_a_task_is_cancelled_or_the_reason_shown(url: str, run: Run) -> None:
    assert run("cancel", DIG[:10], "--url", url) == (0, f"{DIG} is cancelled", "")
    assert TaskEngine.cancelled == [DIG]
    assert run("--url", url, "cancel", DIG) == (1, "", f"isthmus: the task {DIG} is over already: cancelled")
    code, out, _ = run("--url", url, "cancel", DIP, "--json")
    assert (code, json.loads(out)["task"]["status"]) == (0, "cancelled")
    assert run("--url", url, "cancel", "0" * 32) == (
        1,
        "",
        f"isthmus: {url} keeps no task {'0' * 32}: it may have expired",
    )
    complaint = f"isthmus: dddddddd is the beginning of 2 tasks, give more of it: {DIG}, {DIP}"
    assert run("--url", url, "cancel", "dddddddd") == (1, "", complaint)
    assert run("cancel", DIG[:7], "--url", url)[0] == 2
    assert TaskEngine.cancelled == [DIG, DIP]


def test_options_may_stand_before_the_verb_and_after_it(url: str, run: Run) -> None:
    for arguments in (
        ("--url", url, "--token", TOKEN, "--json", "show", DIG),
        ("--url", url, "show", DIG, "--json", "--token", TOKEN),
        ("--token", "another", "show", DIG, "--json", "--url", url, "--token", TOKEN),
    ):
        code, out, err = run(*arguments, token="")
        assert (code, err, json.loads(out)["id"]) == (0, "", DIG)
    code, _, err = run("--url", url, token="")
    assert code == 1 and "wants a token" in err


def test_it_is_a_command(url: str) -> None:
    code, out, err = run_apart("tasks", "show", DIG, "--url", url, env={"ISTHMUS_TOKEN": TOKEN})
    assert (code, err, rows(out)[0]) == (0, "", ["id", DIG])


def test_an_unreachable_gateway_is_reported(tmp_path: Path, run: Run) -> None:
    gone = f"unix:{tmp_path}/gone"
    for arguments in ((), ("list",), ("show", DIG), ("cancel", DIG)):
        complaint = f"isthmus: nothing listens at {gone}: start isthmus there, or name another --url"
        assert run(*arguments, "--url", gone) == (1, "", complaint)


class FixedAnswer:
    """An isthmus that answers every request with one body."""

    def __init__(self, body: Json) -> None:
        self.body = body

    url = "http://h"
    no_isthmus = Isthmus.no_isthmus

    def ask(self, method: str, path: str) -> Json:
        return self.body


@pytest.mark.parametrize("body", [{}, {"tasks": {}}, {"tasks": [7]}, {"tasks": [{"id": 7}]}, {"tasks": [{}]}])
def test_a_server_that_lists_no_tasks_is_no_isthmus(body: Json) -> None:
    with pytest.raises(Failed, match="is no isthmus: it lists no tasks"):
        tasks.listed(FixedAnswer(body))  # type: ignore[arg-type]


def test_a_whole_id_is_meant_even_if_another_begins_so() -> None:
    one = FixedAnswer({"tasks": [{"id": "abcdefgh-1"}, {"id": "abcdefgh"}]})
    assert tasks.find(one, "abcdefgh")["id"] == "abcdefgh"  # type: ignore[arg-type]
    many = FixedAnswer({"tasks": [{"id": f"abcdefgh{n}"} for n in range(7)]})
    with pytest.raises(Failed, match=r"abcdefgh4 and 2 more$"):
        tasks.find(many, "abcdefgh")  # type: ignore[arg-type]


def test_tables_accept_odd_values() -> None:
    odd: Json = {"id": "x\x1b", "tool": "t" * 99, "age_s": "old", "size_bytes": None, "expires_at_unix": 1e30}
    assert rows(tasks.table([odd]))[1] == [r"x\x1b", "-", "t" * 59 + "…", "-", "-", "-", "-", "-"]
    assert ["expires", "-"] in rows(tasks.description(odd))
    assert rows(tasks.table([])) == [["ID", "SERVER", "TOOL", "STATUS", "KIND", "AGE", "EXPIRES IN", "SIZE"]]


@pytest.mark.parametrize(
    "size_bytes, text",
    [(1, "1 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes_are_shown_in_the_largest_unit(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text
