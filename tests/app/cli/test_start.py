"""Tests of what servers are asked at start, and of what the summary and the first clients are told of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Json, Run, Session, until
from isthmus.app.commands import banner
from isthmus.app.commands.check_adapters import names_tools
from isthmus.app.config.file_settings import UploadConsumerAdapter
from isthmus.app.config.settings import Server, ServerTasks, Settings, ToolFilter, Upstream
from isthmus.app.runtime.probe import ServerReport
from screens import cells_of, described, unwrapped

TWO_ERAS = [sys.executable, str(Path(__file__).parents[1] / "peers" / "two_eras.py")]
ANY_PORT = ("--listen", "127.0.0.1:0")

KINDS: dict[tuple[str, ...], list[str]] = {
    ("stdio", "handshake"): ["start", "initialize", "notifications/initialized"],
    ("stdio", "stateless"): ["start", "initialize", "start", "server/discover"],
    ("stdio", "handshake", "stateless"): ["start", "initialize", "notifications/initialized"],
    ("http", "handshake"): ["server/discover", "initialize", "notifications/initialized", "DELETE"],
    ("http", "stateless"): ["server/discover"],
    ("http", "handshake", "stateless"): ["server/discover"],
}
"""The requests to a server of each kind at start, in order. A process begins with `start`."""

SHOWN = {"handshake": "2025-06-18", "stateless": "2026-07-28"}
MISFIT = "WARNING {}: tools.include names echo, and this server has no such tool"


def tag(kind: tuple[str, ...]) -> str:
    return "-".join(kind)


def asked(kind: tuple[str, ...], mode: str) -> list[str]:
    if mode == "quiet":
        return []
    *begin, last = KINDS[kind]
    return [*begin, "tools/list", last] if last == "DELETE" else [*begin, last, "tools/list"]


def summary(kind: tuple[str, ...], mode: str, id: str) -> list[str]:
    """The row of a server without its ends, and its warning."""
    transport, *eras = kind
    if mode == "quiet":
        return ["not asked", transport, "-"]
    found = eras[0] if transport == "stdio" else eras[-1]
    cells = ["ready", f"{transport} {SHOWN[found]}", "0"]
    return cells if mode == "default" else [*cells, MISFIT.format(id)]


def lines_of(screen: str, id: str) -> list[str]:
    lines = unwrapped(screen).splitlines()
    return [*cells_of(screen, id)[1:4], *(line for line in lines if line.startswith(f"WARNING {id}: "))]


class Peer:
    """A server that records what it is asked.

    Attributes:
        target: the arguments of `wrap`.
        upstream: the same in a configuration.
    """

    def __init__(self, kind: tuple[str, ...], folder: Path, port: int) -> None:
        self._seen = folder / tag(kind)
        if kind[0] == "http":
            url = f"http://127.0.0.1:{port}/mcp"
            self.target, self.upstream = [url], {"url": url}
        else:
            command, env = [*TWO_ERAS, *kind[1:]], {"SEEN": str(self._seen)}
            self.target = ["--env", f"SEEN={self._seen}", "--", *command]
            self.upstream: Json = {"command": command, "env": env}

    @property
    def seen(self) -> list[str]:
        return self._seen.read_text().split() if self._seen.exists() else []


@contextlib.contextmanager
def peer(kind: tuple[str, ...], folder: Path) -> Iterator[Peer]:
    if kind[0] == "stdio":
        yield Peer(kind, folder, 0)
        return
    env = os.environ | {"SEEN": str(folder / tag(kind))}
    with subprocess.Popen([*TWO_ERAS, *kind], stdout=subprocess.PIPE, text=True, env=env) as server:
        try:
            assert server.stdout is not None
            yield Peer(kind, folder, int(server.stdout.readline()))
        finally:
            server.kill()


def end(proxy: Run) -> None:
    proxy.signal(signal.SIGTERM)
    assert proxy.wait_exit() == 0


@pytest.mark.parametrize("mode", ["default", "named", "quiet"])
@pytest.mark.parametrize("kind", KINDS, ids=tag)
def test_a_wrapped_server_is_asked_what_the_summary_needs(kind: tuple[str, ...], mode: str, tmp_path: Path) -> None:
    """The summary needs the handshake, in one era after the other, and the tools if options name some. The clients of a
    process get its lists while it starts."""
    options = {"default": [], "named": ["--include-tool", "echo"], "quiet": ["--quiet-start"]}[mode]
    with peer(kind, tmp_path) as server, Run("wrap", *ANY_PORT, *options, *server.target) as wrapped:
        wrapped.wait_url()
        id = wrapped.wait_line("^(\\S+) +(ready|not asked)")[1]
        until(lambda: server.seen == asked(kind, mode), f"it is asked all of that: {server.seen}")
        assert lines_of(wrapped.stdout, id) == summary(kind, mode, id)
        end(wrapped)
        later = server.seen[len(asked(kind, mode)) :]
        assert later in ([], ["start"]), "a spare process may have been started meanwhile, and is asked nothing"


@pytest.mark.parametrize("mode", ["default", "named", "quiet"])
def test_each_server_of_a_gateway_is_asked_what_the_summary_needs(mode: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        peers = {tag(kind): stack.enter_context(peer(kind, tmp_path)) for kind in KINDS}
        tools = {"tools": {"include": ["echo"]}} if mode == "named" else {}
        servers = [
            {"id": id, "upstream": each.upstream, **tools, **({"warm": 0} if "command" in each.upstream else {})}
            for id, each in peers.items()
        ]
        path = tmp_path / "isthmus.json"
        path.write_text(json.dumps({"core": {"port": 0}, "servers": servers}))
        options = ["--quiet-start"] if mode == "quiet" else []
        served = stack.enter_context(Run("serve", *options, str(path), cwd=tmp_path))
        served.wait_line("connect a client")
        expected = {tag(kind): asked(kind, mode) for kind in KINDS}
        until(lambda: {id: each.seen for id, each in peers.items()} == expected, "each is asked all of that")
        for kind in KINDS:
            assert lines_of(served.stdout, tag(kind)) == summary(kind, mode, tag(kind))
        assert "    off  " not in served.stdout, "a configuration says what is on"
        end(served)
        assert {id: each.seen for id, each in peers.items()} == expected


@pytest.mark.parametrize("kind", KINDS, ids=tag)
def test_a_quiet_start_leaves_all_to_the_first_client(kind: tuple[str, ...], tmp_path: Path) -> None:
    with peer(kind, tmp_path) as server, Run("wrap", *ANY_PORT, "--quiet-start", *server.target) as wrapped:
        session = Session(wrapped.wait_url())
        assert session.hello["result"]["serverInfo"]["name"] == "two-eras"
        assert session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})["result"]["tools"] == []
        expected = ["start", "initialize"] if kind[0] == "stdio" else ["initialize"]
        assert server.seen[: len(expected)] == expected
        assert server.seen.count("tools/list") == 1


@pytest.mark.parametrize("target", [["--", "nosuchcommand"], ["http://127.0.0.1:1/mcp"]], ids=["command", "url"])
def test_a_quiet_start_finds_no_fault(target: list[str]) -> None:
    """The first client does, as it would after any other start."""
    for options in ([], ["--quiet-start"]):
        with Run("wrap", *ANY_PORT, *options, *target) as wrapped:
            message = Session(wrapped.wait_url()).hello["error"]["message"]
            assert ("FAILED" in wrapped.stdout) is not bool(options)
            assert "not found on PATH" in message if "--" in target else "127.0.0.1:1" in message


@pytest.mark.parametrize(
    ("server", "are_named"),
    [
        (Server(id="a", upstream=Upstream(command=("x",))), False),
        (Server(id="a", upstream=Upstream(command=("x",)), files="auto"), False),
        (Server(id="a", upstream=Upstream(command=("x",)), tool_time_limits={"t": 1.0}), False),
        (Server(id="a", upstream=Upstream(command=("x",)), tools=ToolFilter(exclude=("t",))), True),
        (Server(id="a", upstream=Upstream(command=("x",)), tasks=ServerTasks(tools={"t": "own"})), True),
        (
            Server(
                id="a",
                upstream=Upstream(command=("x",)),
                adapters=(UploadConsumerAdapter(tools=("t",), file_path_argument="p"),),
            ),
            True,
        ),
    ],
)
def test_tools_are_asked_for_if_a_setting_about_them_is_checked(server: Server, are_named: bool) -> None:
    assert names_tools(server) is are_named


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "    off     tasks (--tasks auto), files (--files)"),
        (["--tasks", "auto"], "    off     files (--files)"),
        (["--tasks", "never"], "    off     files (--files)"),
        (["--files"], "    off     tasks (--tasks auto)"),
        (["--share", "serial"], "    off     tasks (--tasks auto)"),
        (["--tasks", "always", "--files"], None),
        (["--quiet-start"], "    off     tasks, should the server have none (--tasks auto), files (--files)"),
    ],
)
def test_the_summary_of_a_wrapped_server_says_what_is_off(options: list[str], line: str | None) -> None:
    with Run("wrap", *ANY_PORT, *options, "--", *TWO_ERAS, "handshake") as wrapped:
        wrapped.wait_line("connect a client")
        lines = unwrapped(wrapped.stdout).splitlines()
        assert [each for each in lines if each.startswith("    off")] == ([line] if line else [])


def test_nothing_is_said_to_be_off_that_is_on_or_cannot_be_on() -> None:
    """A server may have tasks of its own. One that failed, or that is not inspected, has no option to switch on."""
    server = Server(id="a", upstream=Upstream(url="http://h/"), tasks=ServerTasks(offer="own"))
    assert banner.off(server, ServerReport(id="a", has_tasks=True)) == ["files (--files)"]
    assert banner.off(server, ServerReport(id="a", problem="gone")) == []
    assert banner.off(server, ServerReport(id="a", is_transparent=True)) == []


def test_tools_that_were_not_asked_for_are_not_counted() -> None:
    """None asked for is not none found."""
    server = Server(id="a", upstream=Upstream(url="http://h/"), tools=ToolFilter(include=("t",)))
    for tools, shown in ((None, ["-"]), ((), ["0"]), (("t",), ["1", "t"])):
        lines = described(Settings(), server, ServerReport(id="a", eras={"handshake": "r"}, tools=tools))
        assert lines[0].split("  ")[2:] == shown
        assert any("WARNING" in line for line in lines) is (tools == ())
