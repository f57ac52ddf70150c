"""Tests that the checks of drivers find faults: each is planted in a driver of the examples, which is sound without."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import gateway_targets as targets
import pytest
from ground import ROOT, TIMEOUT_S
from isthmus.app.driver_checks import CHECKS, CheckFailed
from planting import Bug, read_bug

FAULTS = [read_bug(path) for path in sorted(Path(__file__).with_name("faults").glob("*.patch"))]
BY_NAME = {check.name: check for check in CHECKS}
TRIES_MAX = 10
"""Plays of a check until it finds a fault. Two threads do not always meet where a lock is missing."""
FAULT_TIMEOUT_S = 2.0
"""A wait that a fault lasts out. No sound driver is measured by it."""

COMMAND = ("isthmus.app.main", "check-driver")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_faults_are_found(fault: Bug, tmp_path: Path) -> None:
    """The check that the patch names fails with the fault. `test_checks_of_examples` shows that it passes without."""
    start = targets.threaded if "examples/threaded.py" in fault.changes else targets.asgi_process
    (name,) = fault.likely
    folder = targets.example_folder(tmp_path, fault.patched(ROOT))
    with pytest.raises(CheckFailed):
        for _ in range(TRIES_MAX):
            BY_NAME[name](start(folder), timeout_s=FAULT_TIMEOUT_S)


def test_there_are_ten_faults_with_reasons() -> None:
    assert len(FAULTS) >= 10
    assert all("Breaks " in fault.prose for fault in FAULTS)


HTTP_GATEWAY = f"""
import functools, json, os, socket, sys

import acme_gateway.mcp_engine as engine

sys.modules["mcp_engine"] = engine
sys.path.insert(0, {str(ROOT / "examples")!r})
engine.Limits = functools.partial(engine.Limits, **json.loads(sys.argv[2]))
os.environ["MCP_COMMAND"] = sys.argv[1]

import asgi
import serve
import uvicorn

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
serve.Server(uvicorn.Config(asgi.app, log_level="warning", timeout_graceful_shutdown=1)).run([listener])
"""
GATEWAY = """
import json
import runpy
import sys

from acme_gateway import mcp_engine

_, limits, *command = sys.argv
mcp_engine.Limits = mcp_engine.Limits if limits == "{}" else exit("got limits, expected none")
sys.modules["mcp_engine"] = mcp_engine
sys.argv = ["threaded.py", *command]
runpy.run_path("threaded.py", run_name="__main__")
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A folder with a copy of the core under the name on the page, a driver, and the files of the page."""
    (tmp_path / "acme_gateway").mkdir()
    (tmp_path / "acme_gateway" / "__init__.py").touch()
    (tmp_path / "acme_gateway" / "mcp_engine").symlink_to(ROOT / "core")
    (tmp_path / "mcp_engine").symlink_to(ROOT / "core")
    shutil.copy(ROOT / "examples/threaded.py", tmp_path)
    (tmp_path / "my_gateway.py").write_text(GATEWAY)
    (tmp_path / "my_http_gateway.py").write_text(HTTP_GATEWAY)
    text = (ROOT / "docs/vendoring.md").read_text(encoding="utf-8")
    for name in ("my_driver.py", "my_http_driver.py", "serve.py", "test_my_driver.py"):
        (code,) = re.findall(rf"^```python {name}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        (tmp_path / name).write_text(code)
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_s_command_checks_a_driver(page: Path) -> None:
    printed = run(page, *COMMAND, "my_driver:start", "byte_by_byte", "two_sessions")
    reason = "the gateway serves one client on stdio"
    assert printed == f"kept     byte_by_byte\nskipped  two_sessions: {reason}\n"


def test_the_page_s_command_checks_a_driver_for_http(page: Path) -> None:
    printed = run(page, *COMMAND, "my_http_driver:start", "byte_by_byte", "two_sessions")
    assert printed == "kept     byte_by_byte\nkept     two_sessions\n"


def test_the_page_s_server_answers_open_calls_at_its_stop(page: Path) -> None:
    name = "stop_with_an_open_call"
    assert run(page, *COMMAND, "my_http_driver:start", name) == f"kept     {name}\n"
    asgi = (page / "my_http_gateway.py").read_text()
    (page / "my_http_gateway.py").write_text(asgi.replace("serve.Server", "uvicorn.Server"))
    command = [sys.executable, "-m", *COMMAND, "my_http_driver:start", name]
    done = subprocess.run(command, cwd=page, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    says = " " * 9 + BY_NAME[name].says
    assert re.fullmatch(rf"broken   {name}: got .*, expected .*\n{says}\n", done.stdout), done.stdout


def test_the_page_s_test_checks_a_driver(page: Path) -> None:
    chosen = "child_that_exits or two_sessions"
    assert "1 passed, 1 skipped" in run(
        page, "pytest", "-q", "-p", "no:cacheprovider", "test_my_driver.py", "-k", chosen
    )


def test_the_command_fails_for_a_broken_driver_and_for_wrong_words(page: Path) -> None:
    (page / "my_gateway.py").write_text("")
    for words, code, text in (
        (("my_driver:start", "byte_by_byte"), 1, "broken   byte_by_byte: "),
        (("my_driver:start", "no_check"), 2, "got the check no_check, expected some of deaf_child, "),
        (("my_driver:stop",), 2, "got my_driver:stop, expected a function of my_driver"),
        (("no_driver:start",), 2, "expected a module that can be imported from this folder"),
        (("my_driver",), 2, "got my_driver, expected MODULE:FUNCTION"),
        ((), 2, "isthmus check-driver [-h]"),
    ):
        command = [sys.executable, "-m", *COMMAND, *words]
        done = subprocess.run(command, cwd=page, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (done.returncode, text in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
