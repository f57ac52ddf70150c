"""Starts gateways for `app/driver_checks`: the examples, round a `WatchedEngine`, and the product's own."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import preloaded
import pytest
from ground import ROOT, TIMEOUT_S
from isthmus.app.driver_checks import CHECKS, Check, CheckSkipped, Start, Target

EXAMPLES: Final = ("threaded.py", "asgi.py", "asgi_process.py", "asgi_url.py")
LIMITED: Final = str(ROOT / "tests/examples/limited.py")
GRACE_S: Final = "0.5"
CHOSEN: Final = [check for check in CHECKS if "DRIVERS" in os.environ or check.name in ("byte_by_byte", "deaf_child")]
"""The checks of drivers that resemble another one; `make drivers` plays all."""


def play(check: Check, start: Start) -> None:
    try:
        check(start)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


def example_folder(folder: Path, texts: Mapping[str, str] | None = None) -> Path:
    """Puts the examples into a folder, with links in place of their copy of the core. `texts` replaces files."""
    (folder / "mcp_engine").symlink_to(ROOT / "core")
    shutil.copy(ROOT / "tests/examples/watched.py", folder)
    for name in EXAMPLES:
        text = (texts or {}).get(f"examples/{name}") or (ROOT / "examples" / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("GRACE_S = 5.0", f"GRACE_S = {GRACE_S}"), encoding="utf-8")
    return folder


def reader_of(path: Path) -> Callable[[], list[str]]:
    return lambda: path.read_text().splitlines() if path.exists() else []


def threaded(folder: Path) -> Start:
    """Starts `threaded.py`: one client on stdio."""

    @contextmanager
    def start(command: Sequence[str], limits: Mapping[str, Any]) -> Iterator[Target]:
        breaches = folder / f"breaches{time.monotonic_ns()}"
        program = [sys.executable, "watched.py", str(breaches), json.dumps(dict(limits)), "threaded.py", *command]
        yield Target(command=program, cwd=str(folder), breaches=reader_of(breaches))

    return start


@contextmanager
def started(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """A program that says its address. Yields that, and a function that ends the program in order."""
    log = folder / f"log{time.monotonic_ns()}"
    with log.open("wb") as output:
        server = preloaded.popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            cwd=folder,
            imports=[preloaded.COMMAND] if command[1] == LIMITED else (),
        )

    def stop() -> None:
        server.send_signal(signal.SIGTERM)
        server.wait()

    try:
        give_up_at = time.monotonic() + TIMEOUT_S
        while (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())) is None:
            assert time.monotonic() < give_up_at and server.poll() is None, log.read_text()
            select.select([], [], [], 0.02)
        yield found[0], stop
    finally:
        server.kill()
        server.wait()


def asgi_process(folder: Path) -> Start:
    """Starts `asgi.py` behind uvicorn, with a process of the server for each session."""

    @contextmanager
    def start(command: Sequence[str], limits: Mapping[str, Any]) -> Iterator[Target]:
        breaches = folder / f"breaches{time.monotonic_ns()}"
        program = [sys.executable, "watched.py", str(breaches), json.dumps(dict(limits)), "asgi:app"]
        with started(program, folder, {"MCP_COMMAND": shlex.join(command)}) as (url, stop):
            yield Target(url=f"{url}/mcp", stop=stop, answers_at_stop=False, breaches=reader_of(breaches))

    return start


def asgi_url(folder: Path) -> Start:
    """Starts `asgi.py` behind uvicorn. It asks the product's gateway, which has a process of the server."""

    @contextmanager
    def start(command: Sequence[str], limits: Mapping[str, Any]) -> Iterator[Target]:
        breaches = folder / f"breaches{time.monotonic_ns()}"
        program = [sys.executable, "watched.py", str(breaches), json.dumps(dict(limits)), "asgi:app"]
        with started([*limited({}), "--listen", "127.0.0.1:0", "--", *command], folder, {}) as (server, _):
            with started(program, folder, {"MCP_URL": f"{server}/mcp"}) as (url, stop):
                yield Target(
                    url=f"{url}/mcp",
                    stop=stop,
                    runs_processes=False,
                    answers_at_stop=False,
                    breaches=reader_of(breaches),
                )

    return start


def product(folder: Path, *, driver: str = "protocols", loop: str = "asyncio") -> Start:
    """Starts the product's own gateway over HTTP."""

    @contextmanager
    def start(command: Sequence[str], limits: Mapping[str, Any]) -> Iterator[Target]:
        env = {"ISTHMUS_DRIVER": driver, "ISTHMUS_LOOP": loop}
        with started([*limited(limits), "--listen", "127.0.0.1:0", "--", *command], folder, env) as (url, stop):
            yield Target(url=f"{url}/mcp", stop=stop)

    return start


def product_on_stdio(folder: Path) -> Start:
    """Starts the product's own gateway for one client on stdio."""

    @contextmanager
    def start(command: Sequence[str], limits: Mapping[str, Any]) -> Iterator[Target]:
        yield Target(command=[*limited(limits), "--listen", "stdio", "--", *command], cwd=str(folder))

    return start


def limited(limits: Mapping[str, Any]) -> list[str]:
    return [sys.executable, LIMITED, json.dumps(dict(limits)), "wrap", "--quiet-start"]
