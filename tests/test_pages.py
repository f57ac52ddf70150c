"""Tests that the commands of the README and of the task pages do what these pages show.

Each page is followed from its top to its bottom in an empty folder, with an empty home. A block with the name of a file
is written there. A `console` block is typed, and what is printed is compared with the page, where `…` stands for
anything. `tests/test_docs.py` loads the other `yaml` blocks. A block is left out after the comment
`<!-- not run: REASON -->`, which is hidden from readers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from isthmus.app.config.dialects.recognition import recognize

ROOT = Path(__file__).parent.parent
REAL = Path(os.environ.get("ISTHMUS_REAL", ROOT / ".real"))
TASKS = ("index", "clients", "http", "files", "profiles", "protect", "run", "scaling")
PAGES = [ROOT / "README.md", *(ROOT / f"docs/{name}.md" for name in TASKS)]
PORT = "8932"
TIMEOUT_S = 60

BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^>]+) -->\n+ *)?```(?P<language>\w+)?(?: (?P<name>[^\n]+))?\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)

PROGRAMS = {
    "npx": 'shift; name=${1##*/}; shift; exec "$REAL/node/node_modules/.bin/mcp-$name" "$@"',
    "uvx": 'name=$1; shift; exec "$REAL/filers/bin/$name" "$@"',
}
"""Programs that would fetch what tests/real has installed, and run that instead."""

SERVERS = {"everything": ["server-everything"], "filesystem": ["server-filesystem", "/srv"]}
CURSOR = {
    "mcpServers": {
        name: {"command": "npx", "args": ["-y", f"@modelcontextprotocol/{words[0]}", *words[1:]]}
        for name, words in SERVERS.items()
    }
}
"""The file of Cursor that the user of the pages has."""

ANOTHER_PORT = f"""
import os, socket

def moved(method):
    def call(self, address):
        if isinstance(address, tuple) and address[1] == {PORT}:
            address = (address[0], int(os.environ["PAGES_PORT"]), *address[2:])
        return method(self, address)
    return call

for name in ("bind", "connect", "connect_ex"):
    setattr(socket.socket, name, moved(getattr(socket.socket, name)))

def shown(method):
    def call(self):
        address = method(self)
        is_ours = isinstance(address, tuple) and address[1] == int(os.environ["PAGES_PORT"])
        return (address[0], {PORT}, *address[2:]) if is_ours else address
    return call

socket.socket.getsockname = shown(socket.socket.getsockname)
"""
"""The module that Python imports first: a free port takes the place of the one on the pages, and nothing shows it."""


class Block(NamedTuple):
    language: str
    name: str
    text: str
    reason: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(match["language"] or "", match["name"] or "", text, match["reason"] or ""))
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yields each line after a `$ `, with those that a backslash continues, and the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, output = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
        yield line, output


class Terminal:
    """A folder, and the programs that were started in it and go on."""

    def __init__(self, folder: Path) -> None:
        self.home, self.folder, self.programs = folder / "home", folder / "work", folder / "programs"
        for each in (self.home, self.folder, self.programs):
            each.mkdir()
        for name, script in PROGRAMS.items():
            (self.programs / name).write_text(f"#!/bin/sh\nREAL='{REAL}'\n{script}\n")
            (self.programs / name).chmod(0o755)
        (self.programs / "sitecustomize.py").write_text(ANOTHER_PORT)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.write("~/.cursor/mcp.json", json.dumps(CURSOR))
        kept = ("LANG", "TMPDIR", "VIRTUAL_ENV")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PATH": os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self.home),
            "PYTHONPATH": str(self.programs),
            "PYTHONWARNINGS": "ignore",
            "PAGES_PORT": self.port,
            "ISTHMUS_LOOP": "asyncio",  # uvloop binds ports past Python
        }
        self.running: subprocess.Popen[str] | None = None

    def write(self, name: str, text: str) -> None:
        path = self.home / name[2:] if name.startswith("~/") else self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def type(self, line: str, expected: str) -> None:
        """Runs a line. A program that listens goes on, until the page has another one listen."""
        if line.startswith("curl"):
            line = line.replace(f":{PORT}", f":{self.port}")
        listens = line.startswith(("isthmus serve", "isthmus wrap")) and "stdio" not in line
        if listens:
            self.stop()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}" if listens else line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if listens:
            self.running = process
            self.wait_for(process, line, expected)
            return
        try:
            printed, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, f"{line}\n{printed}{errors}"
        assert_looks_like(printed, expected, line, errors)

    def wait_for(self, process: subprocess.Popen[str], line: str, expected: str) -> None:
        """Waits until a program that goes on has printed what the page shows."""
        assert process.stdout is not None
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        printed = ""
        try:
            for said in process.stdout:
                printed += said
                if looks_like(printed, expected):
                    return
        finally:
            timer.cancel()
        assert process.stderr is not None
        assert_looks_like(printed, expected, line, process.stderr.read())

    def stop(self) -> None:
        if self.running is None:
            return
        process, self.running = self.running, None
        try:
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()
            process.wait()


def looks_like(printed: str, expected: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def assert_looks_like(printed: str, expected: str, line: str, errors: str) -> None:
    if expected.strip():
        assert looks_like(printed, expected), f"$ {line}\n{printed}\non the page:\n{expected}\nerrors:\n{errors}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[pytest.mark.real] if re.search(r"\b(npx|uvx) ", page.read_text()) else [], id=page.stem
        )
        for page in PAGES
    ],
)
def test_a_page_works_from_its_top_to_its_bottom(page: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        for block in blocks(page):
            if block.reason:
                continue
            if block.name:
                terminal.write(block.name, block.text)
            elif block.language == "console":
                for line, output in commands(block.text):
                    terminal.type(line, output)
        terminal.stop()
    finally:
        if terminal.running is not None:
            terminal.running.kill()
            terminal.running.wait()


def test_each_block_of_a_task_is_run_or_says_why_not() -> None:
    run = 0
    for page in PAGES:
        for block in blocks(page):
            is_run = block.language in ("console", "mermaid", "text", "yaml") or block.name
            assert is_run or block.reason, f"{page.name}: a block of {block.language!r} has no file name: {block.text}"
            run += not block.reason
    assert run > 20


def test_the_file_of_each_client_is_one_that_isthmus_takes_for_the_same_client() -> None:
    page = ROOT / "docs/clients.md"
    known = 0
    for section in page.read_text(encoding="utf-8").split("\n## ")[1:]:
        for match in re.finditer(r"^```(?:json|toml|yaml) (\S+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
            name, text = match.groups()
            read = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[name.rpartition(".")[2]]
            document = read(text)
            found = recognize(document, f"/home/me/{name}", {})
            assert found is not None, name
            assert found.client.title == section.partition("\n")[0], name
            known += 1
    assert known > 8


def test_the_page_on_running_shows_the_files_of_the_examples() -> None:
    folder = ROOT / "examples/run"
    shown = {block.name: block.text for block in blocks(ROOT / "docs/run.md") if (folder / block.name).is_file()}
    assert shown == {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_words_of_commands_can_be_read() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                assert all(shlex.split(line) for line, _ in commands(block.text)), block.text
