"""Tests of the command as people and supervisors use it: its output, its exit codes, and what it leaves behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import anyio
import jsonschema
import pytest
import yaml
from command import (
    INITIALIZE,
    INITIALIZED,
    ISTHMUS,
    Json,
    Run,
    Session,
    call_message,
    in_background,
    is_alive,
    request,
    run,
    until,
)
from each_row import each_row
from in_process import Inside
from isthmus.app.base import logs
from isthmus.app.base.version import VERSION
from isthmus.app.cli import checking, serving
from isthmus.app.cli.targets import id_of
from isthmus.app.cli.version import EXTRAS
from isthmus.app.commands import banner, demo, describe_eras
from isthmus.app.commands.check_adapters import misfits
from isthmus.app.commands.losses import LOSSES, losses_for_older, losses_of
from isthmus.app.config.addresses import host_of
from isthmus.app.config.checks import check
from isthmus.app.config.file_settings import ArtifactProducerAdapter, Files, UploadConsumerAdapter
from isthmus.app.config.governance_settings import RateLimit
from isthmus.app.config.plan import to_plan
from isthmus.app.config.settings import Artifacts, Server, ServerTasks, Settings, ToolFilter, Uploads, Upstream
from isthmus.app.runtime import signals
from isthmus.app.runtime.probe import ServerReport
from isthmus.core.base.plan import AutoFiles, Links, Offer, Sharing, TaskRules
from isthmus.core.base.revisions import LATEST_LEGACY, LATEST_MODERN, Era
from isthmus.core.base.setting_names import OPTIONS
from isthmus.core.upstream.era_detection import OTHER
from isthmus.core.wire.http.origin import is_loopback
from screens import cells_of, described, unwrapped

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]
TWO_ERAS = Path(__file__).parents[1] / "peers" / "two_eras.py"
EXAMPLES = Path(__file__).parents[3] / "examples"
ANY_PORT = ("--listen", "127.0.0.1:0")
COMMANDS = (
    "serve",
    "wrap",
    "check",
    "ps",
    "start",
    "stop",
    "restart",
    "tasks",
    "files",
    "login",
    "logout",
    "auth",
    "conform",
    "replay",
    "vendor",
    "demo",
    "schema",
    "completion",
)


def configuration(folder: Path, servers: list[Json], **sections: Json) -> Path:
    path = folder / "isthmus.json"
    path.write_text(json.dumps({"core": {"port": 0}, "servers": servers, **sections}))
    return path


# --- Commands without a server --------------------------------------------------------------------------------------


def test_version_and_help(inside: Inside) -> None:
    code, out, err = run("--version")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"isthmus {VERSION}",
        f"Python {platform.python_version()}",
        f"extras installed: {', '.join(EXTRAS)}",  # the environment of the tests has them all
        "extras not installed: none",
    ]
    assert inside("--log-level", "info", "--version") == (0, out, "")
    code, out, err = inside("--help")
    assert (code, err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, inside: Inside) -> None:
    code, out, err = inside(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: isthmus {command} ")
    assert "JSON Schema" in out or command != "schema"
    assert "--log-level" in out
    lines = out.splitlines()
    assert lines[lines.index("") + 1].endswith("."), "a sentence on what it does"
    arguments = re.findall(r"^  [-A-Z]\S*.*(?:\n {10,}.*)*", out, re.MULTILINE)
    assert len(arguments) > 2
    assert all(re.search(r" {2,}\S|\n", argument[2:]) for argument in arguments), "each with an explanation"


def test_the_schema_is_one_and_fits_the_example(inside: Inside) -> None:
    code, out, err = inside("schema")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((EXAMPLES / "isthmus.yaml").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"servers": [{"id": "a", "upstream": {}}]}, schema)


NOT_AT_START = {"importlib.metadata", "jsonschema", "prometheus_client", "wsproto", "yaml"}


def test_it_runs_as_a_module_too_and_loads_little_before_it_knows_what_for() -> None:
    """The parser comes without packages that only some commands use, and `--version` without the parser."""
    for argument, has_parser in (("--help", True), ("--version", False)):
        command = [sys.executable, "-X", "importtime", "-m", "isthmus.app.main", argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert ("isthmus.app.gateway" in loaded) == ("anyio" in loaded) == has_parser
        assert not loaded & NOT_AT_START


NOT_FOR_A_WRAP = NOT_AT_START | {
    "email",
    "http.client",
    "multipart",
    "urllib.request",
    "isthmus.app.admin.metrics",
    "isthmus.app.cli.remote",
    "isthmus.app.commands.demo",
    "isthmus.app.commands.describe_eras",
    "isthmus.app.commands.http_client",
    "isthmus.app.disk.multipart",
    "isthmus.transports.websocket.client_peer",
    "isthmus.transports.websocket.frames",
}


def test_a_wrap_at_work_has_loaded_nothing_that_only_others_need() -> None:
    """`wrap` does not import the HTTP client, the parser of forms, the metrics or the description of eras."""
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX, env={"PYTHONPROFILEIMPORTTIME": "1"}) as wrapped:
        wrapped.wait_url()
        wrapped.signal(signal.SIGTERM)
        assert wrapped.wait_exit() == 0
        loaded = {line.rpartition("|")[2].strip() for line in wrapped.stderr.splitlines()}
    assert {"isthmus.app.gateway", "isthmus.transports.http_server.server"} <= loaded
    assert not loaded & NOT_FOR_A_WRAP
    assert all(find_spec(name) for name in NOT_FOR_A_WRAP if name.startswith("isthmus.")), "the names exist"


def test_options_for_all_stand_before_or_after_the_command(inside: Inside) -> None:
    for arguments in (("--log-level", "debug", "schema"), ("schema", "--log-level", "debug")):
        assert inside(*arguments)[0] == 0
        assert logging.getLogger("isthmus").level == logging.DEBUG
    code, _, err = inside("--log-level", "loud", "schema")
    assert code == 2
    assert "choose from 'debug', 'info', 'warning', 'error', 'critical'" in err


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ((), "COMMAND"),
        (("surf",), "isthmus: error: unknown command surf, expected one of serve, wrap, check, "),
        (("wrap",), "got nothing to wrap, expected a URL, or -- COMMAND ARG…"),
        (("wrap", "--"), "got nothing to wrap"),
        (("wrap", "http://h/", "--", "cmd"), "got both a URL and a command to wrap"),
        (("wrap", "npx", "foo"), "error: to wrap a command, write -- before it: isthmus wrap -- npx …"),
        (("wrap", "npx", "-y", "foo"), "error: to wrap a command, write -- before it: isthmus wrap -- npx …"),
        (("wrap", "--bogus"), "usage: isthmus wrap [options] URL"),
        (("wrap", "--xyzzy=1", "http://h/"), "isthmus wrap: error: unknown option --xyzzy\n"),
        (("wrap", "http://h/", "i"), "isthmus wrap: error: too many arguments"),
        (("serve", "a", "b"), "usage: isthmus serve [options] [CONFIG]"),
        (("serve", "a", "b"), "isthmus serve: error: too many arguments"),
        (
            ("wrap", "ftp://host/"),
            "got the URL ftp://host/, expected http(s)://…, sse+http(s)://…, ws(s)://… or unix:///…",
        ),
        (
            ("wrap", "sse://host/"),
            "got the URL sse://host/, expected http(s)://…, sse+http(s)://…, ws(s)://… or unix:///…",
        ),
        (("wrap", "sse+http://user:word@host/"), "got a URL with user-info, expected credentials in a header"),
        (("wrap", "wss:///x"), "got the URL wss:///x, expected http"),
        (("wrap", "http://user:word@host/"), "got a URL with user-info, expected credentials in a header"),
        (("wrap", "http://host:99999/"), "expected HOST or HOST:PORT"),
        (("wrap", "--header", "Host: x", "http://h/"), "got header Host, which is set for each request"),
        (("wrap", "--header", "X-Key: a\nb", "http://h/"), "the value of header X-Key has characters"),
        (("wrap", "--header", "X: ${UNSET_4711}", "http://h/"), "got --header X with a ${…}, expected the environment"),
        (("wrap", "--env", "X=${", "--", "cmd"), "got --env X with a ${…}, expected ${NAME} or ${NAME:-default}"),
        (("wrap", "http://h/${UNSET_4711}"), "got the URL with a ${…}, expected the environment variable UNSET_4711"),
        (("wrap", "--warm", "2", "http://h/"), "got --warm with a URL or --share, expected it with a command of which"),
        (("wrap", "--warm", "2", "--share", "serial", "--", "c"), "got --warm with a URL or --share, expected it with"),
        (("wrap", "--warm", "65", "--", "c"), "argument --warm: got '65', expected auto, or a number from 0 to 64"),
        (("wrap", "--warm", "-1", "--", "c"), "expected"),
        (("wrap", "--share", "serial", "http://h/"), "got --share with a URL or --files, expected it with a command"),
        (("wrap", "--share", "serial", "--files", "--", "c"), "got --share with a URL or --files, expected it with a"),
        (("wrap", "--header", "no-colon", "http://h/"), "got --header without a :, expected NAME: VALUE"),
        (("wrap", "--no-inspect", "--", "cmd"), "got --no-inspect with a command, expected it with a URL only"),
        (("wrap", "--listen", "stdio", "--no-inspect", "http://h/"), "got --no-inspect with --listen stdio, expected"),
        (("wrap", "--era", "modern", "http://h/"), "choose from 'auto', 'handshake', 'stateless'"),
        (
            ("wrap", "--era", "stateless", "sse+http://h/"),
            "got --era stateless with an sse+ URL, expected auto or hands",
        ),
        (("wrap", "--era", "handshake", "--no-inspect", "http://h/"), "got --era with --no-inspect, which translates"),
        (("wrap", "--tasks", "auto", "--no-inspect", "http://h/"), "got --tasks with --no-inspect, which looks into"),
        (("wrap", "--files", "--no-inspect", "http://h/"), "got --files with --no-inspect, which looks into nothing"),
        (("wrap", "--storage", "s", "--no-inspect", "http://h/"), "got --storage with --no-inspect, which keeps"),
        (
            ("wrap", "--artifact-root", "/", "--", "cmd"),
            "got --artifact-root without --files, expected it with --files",
        ),
        (("wrap", "--links", "text", "--", "cmd"), "got --links without --files, expected it with --files only"),
        (("wrap", "--files", "--links", "none", "--", "cmd"), "choose from 'both', 'resource_link', 'text'"),
        (
            ("wrap", "--files", "--artifact-root", "/no/such", "--", "cmd"),
            "got --artifact-root /no/such, expected a folder that exists",
        ),
        (("wrap", "--tasks", "sometimes", "http://h/"), "choose from 'auto', 'always', 'own', 'never'"),
        (("wrap", "--no-inspect", "sse+http://h/"), "got the URL sse+http://h/, expected http(s)://… or ws(s)://…"),
        (("wrap", "--proxy", "http://p:1", "--", "cmd"), "got --proxy with a command, expected it with a URL only"),
        (("wrap", "--insecure", "--", "cmd"), "got --insecure with a command, expected it with a URL only"),
        (("wrap", "--ca-file", "x.pem", "--", "cmd"), "got --ca-file with a command, expected it with a URL only"),
        (("wrap", "--pass-header", "X", "--", "cmd"), "got --pass-header with a command, expected it with a URL only"),
        (("wrap", "--pass-header", "X", "unix:///s"), "got --pass-header with a unix:// URL, expected it with an http"),
        (("wrap", "--pass-header", "X: y", "http://h/"), "--pass-header: got the name 'X:…', expected the whole name"),
        (("wrap", "--pass-header", "Host", "http://h/"), "--pass-header: got Host, expected another header"),
        (("wrap", "--pass-header", "X", "--header", "x: 1", "http://h/"), "--pass-header: got X, expected a header of"),
        (
            ("wrap", "--listen", "stdio", "--pass-header", "X", "http://h/"),
            "got --pass-header with --listen stdio, expected it with HOST:PORT only",
        ),
        (
            ("wrap", "--max-request-bytes", "1 bit", "--", "cmd"),
            "argument --max-request-bytes: '1 bit' is no byte size",
        ),
        (("wrap", "--proxy", "none", "unix:///s"), "got --proxy with a unix:// URL, expected it with an http or ws"),
        (("wrap", "--proxy", "socks5://p:1", "http://h/"), "--proxy: got a SOCKS proxy, which is not supported"),
        (("wrap", "--proxy", "${UNSET_4711}", "http://h/"), "got --proxy with a ${…}, expected the environment"),
        (("wrap", "--header", "A: b", "--", "cmd"), "got --header with a command, expected it with a URL only"),
        (("wrap", "--env", "A=b", "http://h/"), "got --env, --inherit-env or --cwd with a URL"),
        (("wrap", "--env", "A_4711", "--", "cmd"), "got --env A_4711 without a =, and no variable of that name is set"),
        (("wrap", "--env", "ghp4711", "--", "cmd"), "got --env without a =, and no variable of that name is set here"),
        (("wrap", "--env", "PAHT", "--", "cmd"), "or the NAME of one that is; the nearest that is set is PATH"),
        (("wrap", "--env", "=b", "--", "cmd"), "got --env without a name, expected NAME=VALUE"),
        (("wrap", "--listen", "127.0.0.1:99999", "--", "cmd"), "got --listen 127.0.0.1:99999, expected PORT or HOST"),
        (("wrap", "--inherit-env", "http://h/"), "got --env, --inherit-env or --cwd with a URL"),
        (("wrap", "--listen", "stdio", "--allow-host", "h", "--", "cmd"), "got --allow-host or --allow-origin with"),
        (("wrap", "--allow-origin", "a.test", "--", "cmd"), "got --allow-origin 'a.test', expected the origin of web"),
        (("wrap", "--allow-host", "http://a.test", "--", "cmd"), "got --allow-host 'http://a.test', expected a name"),
        (
            ("check",),
            "none of isthmus.yaml, isthmus.yml, isthmus.toml, isthmus.json, .mcp.json, "
            "mcp.json, .vscode/mcp.json, .cursor/mcp.json is in this folder",
        ),
        (("serve", "--stdio", "web", "no.yaml"), "no.yaml: cannot be read: No such file or directory"),
        (("serve", "--all", "--stdio", "no.yaml"), "no.yaml: cannot be read: No such file or directory"),
        (
            ("serve", "--all", "--stdio", "web", "no.yaml"),
            "got --all and --stdio web, expected --all --stdio, or --std",
        ),
        (
            ("wrap", "--server", "a=x", "--", "cmd"),
            "got --server and a URL or a command to wrap, expected --server for",
        ),
        (("wrap", "--server", "a=x", "--server", "a=y"), "got two servers with the name a, expected --server NAME=…"),
        (("wrap", "--server", "all=x", "--server", "y"), "got --server with the name all, which is that of all serv"),
        (("wrap", "--server", "x", "--header", "A: b"), "got --header with --server, expected it for one server alone"),
        (("wrap", "--server", "x 'y"), "got --server with a command of which No closing quotation, expected it as in"),
        (
            ("wrap", "--server", "a="),
            "got --server with nothing to wrap, expected [NAME=]URL or [NAME=]'COMMAND ARG …'",
        ),
        (("wrap", "--server", ".=x"), "got --server with the name '.', expected letters, digits, dots, hyphens and"),
        (
            ("wrap", "--server", "ftp://h"),
            "got the URL ftp://h, expected http(s)://…, sse+http(s)://…, ws(s)://… or un",
        ),
        (("serve", "--", "cmd"), "got a command after --, which `isthmus serve` does not take"),
        (("check", "--", "cmd"), "got a command after --, which `isthmus check` does not take"),
        (("demo", "--", "cmd"), "got a command after --, which `isthmus demo` does not take"),
        (("ps", "--", "cmd"), "got a command after --, which `isthmus ps` does not take"),
        (("start", "a", "--", "cmd"), "got a command after --, which `isthmus start` does not take"),
        (("stop",), "isthmus stop: error: the following arguments are required: ID"),
        (("ps", "--url", "ws://h/"), "got --url ws://h/, expected http(s)://HOST:PORT"),
        (("ps", "--url", "http://h:99999"), "got --url http://h:99999: "),
        (("ps", "--token", "a b"), "--token: got another text, expected a secret of visible ASCII"),
        (("tasks", "--", "cmd"), "got a command after --, which `isthmus tasks` does not take"),
        (("https://user:word@host/",), "isthmus: error: got no command, expected one of serve, "),
        (("wrap", "--alow-host", "h"), "isthmus wrap: error: unknown option --alow-host; did you mean --allow-host?"),
        (("wrap", "--era", "statles"), "'stateless'); did you mean stateless?"),
        (("tasks", "surf"), "error: unknown command surf, expected one of list, show, cancel"),
        (("tasks", "show"), "isthmus tasks show: error: the following arguments are required: ID"),
        (("tasks", "cancel", "0123456"), "got the id '0123456', expected the task's id, or at least its first 8 char"),
        (
            ("tasks", "--server", "a", "cancel", "01234567"),
            "got --server with `tasks cancel`, expected it with `tasks l",
        ),
        (
            ("tasks", "list", "--status", "done"),
            "choose from 'working', 'input_required', 'completed', 'failed', 'canc",
        ),
        (("tasks", "list", "a"), "isthmus tasks list: error: too many arguments"),
        (("tasks", "show", "01234567", "--frob"), "isthmus tasks show: error: unknown option --frob"),
        (("tasks", "list", "--url", "ws://h/"), "got --url ws://h/, expected http(s)://HOST:PORT"),
        (("schema", "--", "cmd"), "got a command after --, which `isthmus schema` does not take"),
    ],
    ids=lambda value: " ".join(value).replace("\n", " ") if isinstance(value, tuple) else "",
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], complaint: str, inside: Inside) -> None:
    code, out, err = inside(*arguments)
    assert (code, out) == (2, "")
    assert complaint in f"{err}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--header", "Authorization Bearer 4711", "http://h/"),
        ("--header", "Authorization:", "Bearer", "4711", "http://h/"),
        ("--headers", "Authorization: Bearer 4711", "http://h/"),
        ("--headers=Authorization: Bearer 4711", "http://h/"),
        ("--headers=Authorization: Bearer 4711",),
        ("--env", "4711", "--", "cmd"),
        ("--environment", "KEY=4711", "--", "cmd"),
        ("htps://host/?token=4711",),
        ("htps://me:4711@host/",),
        ("http://host/?token=4711", "--", "cmd"),
        ("http://host/", "4711"),
        ("http://me:4711@host/",),
        ("npx", "thing", "--token", "4711"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_not_repeated_where_they_may_be_secrets(arguments: tuple[str, ...], inside: Inside) -> None:
    code, out, err = inside("wrap", *arguments)
    assert (code, out) == (2, "")
    assert "4711" not in err


def test_a_trace_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    code, _, err = run("wrap", *ANY_PORT, "--trace", str(tmp_path / "no" / "trace"), "--", *TOOLBOX)
    assert (code, err) == (1, f"isthmus: the trace {tmp_path}/no/trace cannot be written: No such file or directory")


# --- A closed terminal ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["full disk", "closed pipe"])
def no_screen(request: pytest.FixtureRequest) -> Iterator[IO[bytes]]:
    if request.param == "full disk":
        with open("/dev/full", "wb", buffering=0) as file:
            yield file
    else:
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb", buffering=0) as file:
            yield file


@pytest.mark.parametrize("command", ["schema", "check", "demo"])
def test_what_nobody_can_read_is_a_failure_in_one_line(command: str, no_screen: IO[bytes], tmp_path: Path) -> None:
    configuration(tmp_path, [{"id": "box", "upstream": {"command": TOOLBOX}}])
    code, _, err = run(command, cwd=tmp_path, stdout=no_screen)
    assert code == 1
    assert re.fullmatch(r"(isthmus|\nthe demo failed): stdout cannot be written: (Broken pipe|No space left .*)", err)


def test_help_that_nobody_can_read_leaves_no_traceback(no_screen: IO[bytes]) -> None:
    assert run("--help", stdout=no_screen)[1:] == ("", "")


def test_the_gateway_needs_no_screen(no_screen: IO[bytes], tmp_path: Path) -> None:
    path = configuration(tmp_path, [{"id": "box", "upstream": {"command": TOOLBOX}}])
    with Run("serve", str(path), stdout=no_screen) as served:
        served.wait_line("warning nobody sees the banner: stdout cannot be written: ", "stderr")
        served.signal(signal.SIGTERM)
        assert served.wait_exit() == 0
        assert "Traceback" not in served.stderr


def test_a_client_with_a_closed_terminal_leaves_no_traceback(no_screen: IO[bytes]) -> None:
    with Run("wrap", "--listen", "stdio", "--", *TOOLBOX, stdout=no_screen) as wrapped:
        wrapped.write(INITIALIZE)
        assert wrapped.wait_exit() == 0, "a client that does not read is one that left"
        assert wrapped.stderr == ""


def test_stdout_and_stderr_may_be_closed(tmp_path: Path) -> None:
    """A file that is opened later does not get the descriptor of stdout or stderr."""
    configuration(tmp_path, [{"id": "box", "upstream": {"command": TOOLBOX}}])
    done = subprocess.run(["sh", "-c", f"{ISTHMUS} check <&- >&- 2>&-"], cwd=tmp_path, timeout=20, check=False)
    assert done.returncode == 0


def test_a_screen_of_another_alphabet_gets_escapes() -> None:
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX, "café", env={"PYTHONIOENCODING": "ascii"}) as wrapped:
        wrapped.wait_url()
        assert r"server  caf\xe9 1.2" in wrapped.stdout


# --- check ----------------------------------------------------------------------------------------------------------


def test_check_shows_the_response_of_a_server_of_another_transport(tmp_path: Path) -> None:
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX) as wrapped:
        at = wrapped.wait_url().removeprefix("http://").removesuffix("/mcp")
        urls = {"sse": f"sse+http://{at}/mcp", "plain": f"http://{at}/ws"}
        configuration(tmp_path, [{"id": id, "upstream": {"url": url}} for id, url in urls.items()])
        code, out, _ = run("check", cwd=tmp_path)
    out = unwrapped(out)
    assert code == 1
    assert "the server could not be connected to: got HTTP status 400, expected success; it says: got no Mcp-Ses" in out
    told = out.partition("\n  profile ")[0]
    assert told.count("over HTTP+SSE got HTTP status 426, expected success; is it a ws:// server?") == 1


def test_check_says_what_is_wired(tmp_path: Path) -> None:
    adapter = {"type": "upload_consumer", "tools": ["echo"], "file_path_argument": "text"}
    path = configuration(tmp_path, [{"id": "box", "upstream": {"command": TOOLBOX}, "adapters": [adapter]}])
    code, out, err = run("check", cwd=tmp_path)
    assert (code, err) == (0, "")
    table = [
        "SERVER  STATE  SPEAKS            TOOLS",
        f"box     ready  stdio {LATEST_LEGACY}      6  echo, ask, progress, wait and 2 more",
        "",
        "all tools of a server: isthmus tools SERVER",
        "",
        "  box",
        "    server  toolbox 1.2",
        "    files   echo takes upload:// handles in text (from box_put_file)",
    ]
    assert out.splitlines() == [
        f"{path.name}: valid, 1 server",
        "",
        *table,
        "",
        "clients of every revision can use these servers (isthmus check --eras: how)",
        "all checks passed",
        "next: isthmus serve",
    ]
    out = run("check", "--eras", str(path), cwd=tmp_path)[1]
    assert out.splitlines() == [
        f"{path}: valid, 1 server",
        "",
        *(line.replace("tools SERVER", f"tools {path} SERVER") for line in table),
        f"    eras    handshake era, revision {LATEST_LEGACY}",
        *describe_eras.describe(
            ServerReport(id="box", eras={"handshake": LATEST_LEGACY}, declared=("resources", "tools"))
        ),
        "",
        "what becomes of each thing that is not carried as it is: docs/eras.md",
        "all checks passed",
        f"next: isthmus serve {path}",
    ]


@pytest.mark.parametrize("era", [None, "handshake", "stateless"])
@pytest.mark.parametrize("eras", [("handshake",), ("stateless",), ("handshake", "stateless")], ids="+".join)
def test_check_finds_the_eras_of_a_server(tmp_path: Path, eras: tuple[str, ...], era: str | None) -> None:
    """Every era of the server is found, unless one was chosen. The translations shown are those for clients of the
    other era."""
    upstream = {"command": [sys.executable, str(TWO_ERAS), *eras]} | ({} if era is None else {"era": era})
    configuration(tmp_path, [{"id": "a", "upstream": upstream}])
    code, out, _ = run("check", "--eras", cwd=tmp_path)
    out = unwrapped(out)
    found = [one for one in eras if era in (None, one)]
    if not found:
        assert code == 1
        assert f"; its era is said to be {era}, so no other was tried" in out
        return
    revisions = {"handshake": "handshake era, revision 2025-06-18", "stateless": "stateless era, revision 2026-07-28"}
    assert code == 0
    assert f"    eras    {'; '.join(revisions[one] for one in found)}\n" in out
    assert cells_of(out, "a")[1:3] == ["ready", f"stdio {revisions[found[0]][-10:]}"]
    own = {"handshake": "logging", "stateless": "completions"}
    assert f"    can     {', '.join(sorted(own[one] for one in found))}, tools (listChanged)\n" in out
    assert ("clients without sessions (2026-07-28) are translated" in out) == (found == ["handshake"])
    assert ("clients with sessions (2024-11-05 to 2025-11-25) are translated" in out) == (found == ["stateless"])
    assert ("log messages of one request" in out) == (found == ["handshake"])  # only with the logging capability
    assert "repeated changes" not in out  # only with the subscriptions capability


def test_translations_follow_the_era_that_the_server_is_used_in() -> None:
    """Translations are shown for the era that the proxy speaks to the server. A handshake may give no session, so
    features that need one are listed as well."""
    both = {"handshake": LATEST_LEGACY, "stateless": LATEST_MODERN}
    descriptions = {
        era: "\n".join(describe_eras.describe(ServerReport(id="a", eras=both, era=era)))
        for era in ("handshake", "stateless")
    }
    assert "are translated for" not in descriptions["handshake"] and "older than" in descriptions["handshake"]
    assert "clients with sessions (2024-11-05 to 2025-11-25) are translated for" in descriptions["stateless"]
    assert "older than" not in descriptions["stateless"]


def test_every_loss_is_listed_in_a_line_that_fits() -> None:
    """Each loss of a server that declares everything is listed under the heading of its fate in the table."""
    declared = tuple(sorted({part for loss in LOSSES for part in (loss.capability, loss.capability.partition(".")[0])}))
    for eras in ({"handshake": LATEST_LEGACY}, {"stateless": LATEST_MODERN}):
        lines = describe_eras.describe(ServerReport(id="a", eras=eras, declared=declared))
        assert max(map(len, lines)) <= describe_eras.WIDTH
        text = re.sub(r"\n {15}", " ", "\n".join(lines))
        era = Era(next(iter(eras)))
        losses = [*losses_of(era, OTHER[era], declared), *losses_for_older(era, declared)]
        assert len(losses) > 10
        for loss in losses:
            assert re.search(rf"^      {loss.fate}  .*\b{re.escape(loss.feature)}(,|$)", text, re.MULTILINE), (
                loss.feature
            )


def test_a_long_list_of_tools_is_cut() -> None:
    server, names = Server(id="a", upstream=Upstream(command=("x",))), [f"t{i}" for i in range(20)]
    for count, shown in ((0, []), (2, ["t0, t1"]), (20, [f"{', '.join(names[:9])} and 11 more"])):
        report = ServerReport(id="a", name="n", version="1", eras={"handshake": "r"}, tools=tuple(names[:count]))
        row, *lines = described(Settings(), server, report)
        assert row.split("  ") == ["ready", "stdio r", str(count), *shown]
        assert lines == ["    server  n 1"]


def test_long_names_are_cut() -> None:
    """A name of any length takes a part of a line; one of 60 characters is whole."""
    long, whole = "é" * 3000, "t" * 60
    report = ServerReport(id="a", name=long, version=long, eras={"handshake": "r"}, tools=(long, whole))
    lines = described(Settings(), Server(id="a", upstream=Upstream(command=("x",))), report)
    cut = "é" * 59 + "…"
    shown = re.fullmatch("ready  stdio r  2  (é+)… and 1 more", lines[0])
    assert shown is not None and len(shown[1]) < 60
    assert lines[1:] == [f"    server  {cut} {cut}"]


def test_hidden_tools_are_counted_and_not_named() -> None:
    """The helper tool belongs to the proxy, and is not counted."""
    adapter = UploadConsumerAdapter(tools=("get_a",), file_path_argument="p")
    server = Server(
        id="a", upstream=Upstream(command=("x",)), tools=ToolFilter(include=("get_*",)), adapters=(adapter,)
    )
    report = ServerReport(id="a", eras={"handshake": "r"}, tools=("a_get_upload_url", "get_a", "drop", "wipe"))
    assert described(Settings(), server, report)[0] == "ready  stdio r  1  get_a (2 hidden)"
    report = ServerReport(id="a", eras={"handshake": "r"}, tools=("drop",))
    assert described(Settings(), server, report)[0] == "ready  stdio r  0  (1 hidden)"


SCHEMAS: dict[str, object] = {
    "read": {"properties": {"path": {}}},
    "put": {"properties": {"files": {"items": {"properties": {"path": {}}}}}},
    "free": None,
}


@pytest.mark.parametrize(
    ("tools", "arguments", "named"),
    [
        (("re*", "p?t"), ("path", "files[*].path"), []),
        (("re*",), ("path", "file"), ["the argument file, which none of its tools has"]),
        (("*",), ("path",), []),
        (("[rp]*",), ("source",), ["the argument source, which none of its tools has"]),
        (("wr*",), ("path",), ["tools by wr*, and this server has none that fits"]),
        (("read", "put"), ("path", "files[*].path"), []),
        (("read", "put"), ("path", "paths"), ["the arguments path, paths, and put has none of them"]),
        (("read", "free"), ("path", "other"), []),
        (
            ("put",),
            ("files[*].pth",),
            ["the argument files[*].pth, which put does not have; did you mean files[*].path?"],
        ),
        (("rad",), ("path",), ["the tool rad, which this server does not have; did you mean read?"]),
    ],
)
def test_patterns_and_several_arguments_are_held_against_the_tools(
    tools: tuple[str, ...], arguments: tuple[str, ...], named: list[str]
) -> None:
    """A tool that is named whole must have one of the arguments, and each argument must belong to some tool."""
    adapter = UploadConsumerAdapter(tools=tools, file_path_argument=arguments)
    server = Server(id="a", upstream=Upstream(command=("x",)), adapters=(adapter,))
    report = ServerReport(id="a", tools=("a_get_upload_url", *SCHEMAS), schemas=SCHEMAS)
    assert misfits(server, report) == [f"upload_consumer names {line}" for line in named]


def test_the_handling_of_files_of_each_tool_is_described() -> None:
    server = Server(id="a", upstream=Upstream(command=("x",)), files="auto")
    report = ServerReport(id="a", eras={"handshake": "r"}, tools=("a_get_upload_url", "read"))
    lines = [line for line in described(Settings(), server, report) if line.startswith("    files ")]
    assert lines == [
        "    files   auto: every tool takes handles in any argument (from a_put_file)",
        "    files   auto: every tool makes artifact:// resources of files it names or changes in the session's folders"
        "; their paths in results become URIs, text up to 32 KiB is put into results",
    ]
    server = Server(id="a", upstream=server.upstream, files=Files(rewrite_text=False, inline_text_bytes=0))
    settings = Settings(uploads=Uploads(enabled=False))
    lines = [line for line in described(settings, server, report) if line.startswith("    files ")]
    assert "uploads.enabled is switched off" in lines[0] and lines[1].endswith("session's folders")
    settings = Settings(artifacts=Artifacts(enabled=False))
    assert "artifacts.enabled is switched off" in "".join(described(settings, server, report))


@pytest.mark.parametrize(
    ("include", "exclude", "named"),
    [
        (("get_a", "get_*", "?ut"), ("drop", "wipe_*"), []),
        (("get_b",), (), ["include names get_b, and this server has no such tool; did you mean get_a?"]),
        (("x_*",), (), ["include names x_*, and this server has no such tool"]),
        ((), ("dropp",), ["exclude names dropp, and this server has no such tool; did you mean drop?"]),
        (("a_get_upload_url",), (), ["include names a_get_upload_url, and this server has no such tool"]),
    ],
)
def test_an_entry_of_a_filter_that_is_about_no_tool_is_named(
    include: tuple[str, ...], exclude: tuple[str, ...], named: list[str]
) -> None:
    """An unmatched pattern in `exclude` may be meant for later tools, but a misspelt name there hides nothing."""
    adapter = UploadConsumerAdapter(tools=("put",), file_path_argument="p")
    tools = ToolFilter(include=include, exclude=exclude)
    server = Server(id="a", upstream=Upstream(command=("x",)), tools=tools, adapters=(adapter,))
    report = ServerReport(id="a", tools=("a_get_upload_url", "get_a", "put", "drop"))
    assert misfits(server, report) == [f"tools.{line}" for line in named]


def test_a_tool_of_its_own_offer_or_rate_that_is_misspelt_is_named() -> None:
    """An unmatched pattern may be meant for later tools. All rates are shown."""
    tasks = ServerTasks(tools={"dropp": "never", "put": "always", "get_*": "never"})
    rates = (
        RateLimit(calls=1, per_seconds=60, by="server"),
        RateLimit(calls=10, per_seconds=0.5, tools=("put", "get_*", "putt")),
    )
    server = Server(id="a", upstream=Upstream(command=("x",)), tasks=tasks, rate_limits=rates)
    report = ServerReport(id="a", tools=("put", "drop"))
    wrong = [
        "tasks.tools names dropp, and this server has no such tool; did you mean drop?",
        "rate_limits[1].tools names putt, and this server has no such tool; did you mean put?",
    ]
    assert misfits(server, report) == wrong
    assert described(Settings(), server, report)[-4:] == [
        "    limits  1 call of all callers per 60 s for all tools",
        "    limits  10 calls per 0.5 s for put, get_*, putt",
        *(f"WARNING a: {line}" for line in wrong),
    ]


def settings_of(inside: Inside, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Settings:
    """Returns the settings that a command would run with."""
    begun: list[Settings] = []

    def note(work: Any, if_stopped: int) -> int:
        begun.append(work.args[0])
        return 0

    monkeypatch.setattr(serving, "run", note)
    assert inside(*arguments)[0] == 0
    return begun[0]


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ((), TaskRules(offer=Offer.OWN)),
        (("--tasks", "own"), TaskRules(offer=Offer.OWN)),
        (("--tasks", "never"), TaskRules(offer=Offer.NEVER)),
        (("--tasks", "auto"), TaskRules(offer=Offer.AUTO)),
        (("--tasks", "always"), TaskRules(offer=Offer.ALWAYS)),
    ],
)
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "stdio", "stdio+unix:/run/x"])
def test_a_wrapped_server_offers_the_tasks_that_are_asked_for(
    options: tuple[str, ...], rules: TaskRules, listen: str, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapped server is relayed, so its own tasks are offered by default."""
    settings = settings_of(inside, monkeypatch, "wrap", *options, "--listen", listen, "http://h/mcp")
    (plan,) = to_plan(settings, b"k" * 16, "/", "").servers
    assert plan.tasks == rules


@pytest.mark.parametrize("share", ["none", "concurrent", "serial"])
def test_sessions_of_a_wrapped_command_share_its_process_if_asked(
    share: str, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages name options of the command, and no keys of a configuration."""
    begun: list[Any] = []

    def note(work: Any, if_stopped: int) -> int:
        begun.append(work)
        return 0

    monkeypatch.setattr(serving, "run", note)
    assert inside("wrap", "--share", share, "--", "cmd")[0] == 0
    names = begun[0].keywords["names"]
    (plan,) = to_plan(begun[0].args[0], b"k" * 16, "/", "", names=names).servers
    assert (plan.sharing, plan.names) == (Sharing(share), OPTIONS)


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("0", 0), ("auto", "auto")])
def test_processes_of_a_wrapped_command_are_kept_ready(
    text: str, expected: object, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL beside it has none."""
    targets = ("--server", "a=cmd", "--server", "http://h/")
    command, url = settings_of(inside, monkeypatch, "wrap", "--warm", text, *targets).servers
    (default,) = settings_of(inside, monkeypatch, "wrap", "--", "cmd").servers
    assert (command.warm, url.warm) == (expected, default.warm)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "stdio"])
def test_wrap_sets_the_size_of_requests(inside: Inside, listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(inside, monkeypatch, "wrap", "--listen", listen, "--max-request-bytes", "64Mi", "--", "cmd")
    assert settings.core.max_request_bytes == 64 << 20
    default = settings_of(inside, monkeypatch, "wrap", "--listen", listen, "--", "cmd")
    assert default.core.max_request_bytes == 16 << 20


def test_wrap_passes_headers_of_clients_on(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--pass-header", "Authorization", "--pass-header", "x-tenant", "http://h/")
    upstream = settings_of(inside, monkeypatch, "wrap", *options).servers[0].upstream
    assert upstream.passes == (("Authorization", "Authorization"), ("x-tenant", "x-tenant"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--header", "X: Bearer ${TOKEN}", "http://h/"), Upstream(url="http://h/", headers={"X": "Bearer 4711"})),
        (("--proxy", "http://u:${TOKEN}@p:1", "http://h/"), Upstream(url="http://h/", proxy="http://u:4711@p:1")),
        (
            ("--proxy", "none", "--ca-file", "/c", "ws://h/"),
            Upstream(url="ws://h/", proxy="none", ca_file="/c"),
        ),
        (("--header", "X:${NONE:-a $$}", "http://h/"), Upstream(url="http://h/", headers={"X": "a $"})),
        (("--header", "X: $$4", "http://h/"), Upstream(url="http://h/", headers={"X": "$$4"})),
        (("http://h/${TOKEN}",), Upstream(url="http://h/4711")),
        (("--env", "X=${TOKEN}", "--", "sh", "${TOKEN}"), Upstream(command=("sh", "${TOKEN}"), env={"X": "4711"})),
        (("--env", "TOKEN", "--", "sh"), Upstream(command=("sh",), env={"TOKEN": "4711"})),
    ],
)
def test_options_of_wrap_know_variables_as_a_configuration_does(
    arguments: tuple[str, ...],
    expected: Upstream,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command's arguments stay: a shell may be meant to replace what is in them."""
    monkeypatch.setenv("TOKEN", "4711")
    upstream = settings_of(inside, monkeypatch, "wrap", *arguments).servers[0].upstream
    assert (upstream.url, upstream.headers, upstream.command, upstream.env) == (
        expected.url, expected.headers, expected.command, expected.env
    )  # fmt: skip


def test_relative_paths_of_a_command_with_files_become_absolute(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command runs in another folder, so relative paths of files become absolute. Names of folders, missing
    files and code stay as they are."""
    begun: list[tuple[Settings, bool]] = []

    def note(work: Any, if_stopped: int) -> int:
        begun.append((work.args[0], work.keywords["is_lasting"]))
        return 0

    monkeypatch.setattr(serving, "run", note)
    monkeypatch.chdir(tmp_path)
    for name in ("serve.py", "conf.json", "x", "work/conf.json", "python"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    command = ("python", "./serve.py", "-m", "x", "conf.json", "work", "no.json", "{ws}/a", "/etc/hosts")
    inside("wrap", "--files", "--artifact-root", "work", "--storage", "kept", "--", *command)
    settings, is_lasting = begun.pop()
    (server,) = settings.servers
    full = tuple(str(tmp_path / name) for name in ("serve.py", "conf.json"))
    assert server.upstream.command == ("python", full[0], "-m", "x", full[1], *command[5:])
    assert (server.artifact_roots, settings.storage.root) == ((str(tmp_path / "work"),), str(tmp_path / "kept"))
    assert is_lasting and list(check(settings, lambda key: True)) == []
    (plan,) = to_plan(settings, b"k" * 16, "/", "").servers
    assert plan.auto_files == AutoFiles()

    for given, meant in (((), "both"), (("--links", "text"), "text"), (("--links", "resource_link"), "resource_link")):
        inside("wrap", "--files", *given, "--", "python")
        (plan,) = to_plan(begun.pop()[0], b"k" * 16, "/", "").servers
        assert plan.auto_files == AutoFiles(links=Links(meant))

    inside("wrap", "--files", "--cwd", "work", "--", "./serve.py", "conf.json")
    settings, is_lasting = begun.pop()
    assert settings.servers[0].upstream.command == ("./serve.py", "conf.json"), "a folder of theirs counts from there"
    assert (settings.servers[0].upstream.cwd, is_lasting) == (str(tmp_path / "work"), False)
    inside("wrap", "--files", "--cwd", "{ws}/a", "--", "./serve.py")
    assert begun.pop()[0].servers[0].upstream.cwd == "{ws}/a"
    inside("wrap", "--", "./serve.py", "conf.json")
    assert begun.pop()[0].servers[0].upstream.command == ("./serve.py", "conf.json")


def test_what_is_not_inspected_is_left_its_tasks(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Settings] = []
    monkeypatch.setattr(serving, "run", lambda work, if_stopped: begun.append(work.args[0]) or 0)
    assert inside("wrap", "--no-inspect", "http://h/mcp")[0] == 0
    assert not begun[0].servers[0].inspect
    assert list(check(begun[0], lambda key: True)) == [], "as a configuration it would be taken"


@pytest.mark.parametrize(
    ("pass_headers", "status", "waits"), [(("A",), 401, True), (("A",), 500, False), ((), 401, False)]
)
def test_a_server_that_waits_for_clients_credentials_has_not_failed(
    pass_headers: tuple[str, ...], status: int, waits: bool
) -> None:
    server = Server(id="a", upstream=Upstream(url="http://h", pass_headers=pass_headers))
    row, line = described(Settings(), server, ServerReport(id="a", problem="no", status=status))
    assert row.split("  ")[0] == ("waits" if waits else "FAILED")
    assert ("FAILED" in line) is not waits
    assert ("answers only clients with credentials of their own" in line) is waits


def test_a_server_may_be_without_name_and_version() -> None:
    for name, version, shown in (("n", "", "n"), ("", "2", "2"), ("", "", "without a name")):
        report = ServerReport(id="a", name=name, version=version, eras={"handshake": "r"})
        lines = described(Settings(), Server(id="a", upstream=Upstream(command=("x",))), report)
        assert lines[1] == f"    server  {shown}"


def test_switched_off_features_are_named() -> None:
    """Tools with the same treatment share a line."""
    consumer = UploadConsumerAdapter(tools=("t", "u"), file_path_argument="p")
    producer = ArtifactProducerAdapter(tools=("t", "u"), output_path_argument="o")
    unlisted = ArtifactProducerAdapter(tools=("t",), output_path_argument="o", expose_as_resource=False)
    ignored = ArtifactProducerAdapter(tools=("t",), output_path_argument="o", persist=False)
    server = Server(id="a", upstream=Upstream(command=("x",)), adapters=(consumer, producer, unlisted, ignored))
    report = ServerReport(id="a", tools=("t", "u"))

    def files(settings: Settings) -> list[str]:
        return [line.removeprefix("    files   ") for line in described(settings, server, report)[2:]]

    takes_line = "t, u take upload:// handles in p (from a_put_file)"
    off_line = "t: files are not taken in, persist is switched off"
    unlisted_line = "t makes artifacts, not listed as resources (o)"
    assert files(Settings()) == [takes_line, "t, u make artifact:// resources (o)", unlisted_line, off_line]
    assert files(Settings(artifacts=Artifacts(expose_as_resources=False)))[1:3] == [
        "t, u make artifacts, not listed as resources (o)",
        unlisted_line,
    ]
    assert files(Settings(uploads=Uploads(enabled=False), artifacts=Artifacts(enabled=False))) == [
        "t, u: handles are not taken, uploads.enabled is switched off",
        "t, u: files are not taken in, artifacts.enabled is switched off",
        *["t: files are not taken in, artifacts.enabled is switched off"] * 2,
    ]


NESTED = {"type": "object", "properties": {"in": {"properties": {"file": {}}}, "any": {"$ref": "#/$defs/x"}}}

LISTS = {"properties": {"files": {"items": {"properties": {"path": {}}}}, "rows": {"items": {"items": {}}}}}


@each_row(
    "schema, argument, named",
    [
        (
            {"properties": {"message": {}}},
            "messge",
            "the argument messge, which t does not have; did you mean message?",
        ),
        ({"properties": {"message": {}}}, "path", "the argument path, which t does not have"),
        ({"properties": {}, "additionalProperties": False}, "path", "the argument path, which t does not have"),
        (NESTED, "in.fil", "the argument in.fil, which t does not have; did you mean in.file?"),
        (NESTED, "in.file", None),
        (NESTED, "in.file.path", None),
        (NESTED, "any.file", None),
        (LISTS, "files[*].path", None),
        (LISTS, "files[*].pth", "the argument files[*].pth, which t does not have; did you mean files[*].path?"),
        (LISTS, "file[*].path", "the argument file[*].path, which t does not have"),
        (LISTS, "rows[*][*].path", None),
        (LISTS, "files[*].path[*].x", None),
        ({"properties": {}, "additionalProperties": True}, "path", None),
        ({"properties": {}, "additionalProperties": {"type": "string"}}, "path", None),
        ({"properties": {}, "anyOf": [{"properties": {"path": {}}}]}, "path", None),
        ({"type": "object"}, "path", None),
        ({"properties": []}, "path", None),
        (None, "path", None),
        ("a schema", "path", None),
    ],
)
@each_row("kind", ["upload_consumer", "artifact_producer"])
def test_an_argument_that_the_schema_rules_out_is_named(
    kind: str, schema: object, argument: str, named: str | None
) -> None:
    adapter: UploadConsumerAdapter | ArtifactProducerAdapter = (
        UploadConsumerAdapter(tools=("t",), file_path_argument=argument)
        if kind == "upload_consumer"
        else ArtifactProducerAdapter(tools=("t",), output_path_argument=argument)
    )
    server = Server(id="a", upstream=Upstream(command=("x",)), adapters=(adapter,))
    report = ServerReport(id="a", tools=("t",), schemas={"t": schema})
    assert misfits(server, report) == ([] if named is None else [f"{kind} names {named}"])


@pytest.mark.parametrize(
    "target, id",
    [
        (["npx", "-y", "@scope/thing@1.2", "--flag"], "thing"),
        (["python", "-m", "my_server"], "my_server"),
        (["python3", "-c", "print('a b')"], "python3"),
        (["node", "/srv/my server/server.js"], "my-server"),
        (["node", "/srv/node_modules/@scope/thing/dist/index.js"], "thing"),
        (["node", "dist/index.js"], "index.js"),
        (["/opt/thing/bin/server"], "thing"),
        (["./--"], "server"),
    ],
    ids=str,
)
def test_a_wrapped_command_gets_a_telling_name(target: list[str], id: str) -> None:
    assert id_of(target) == id


def test_check_fails_for_what_is_not_wired(tmp_path: Path) -> None:
    adapter = {"type": "artifact_producer", "tools": ["echo", "ecco"], "output_path_argument": "txt"}
    servers: list[Json] = [
        {"id": "box", "upstream": {"command": TOOLBOX}, "adapters": [adapter]},
        {"id": "gone", "upstream": {"command": ["nosuchcommand"]}},
        {"id": "far", "upstream": {"url": "http://127.0.0.1:9/mcp"}},
    ]
    code, out, err = run("check", str(configuration(tmp_path, servers)))
    assert (code, err) == (1, "")  # the failure is reported once
    assert max(len(line) for line in out.splitlines() if str(tmp_path) not in line) <= 80
    out = unwrapped(out)
    lacks = "WARNING box: artifact_producer names the"
    assert f"{lacks} tool ecco, which this server does not have; did you mean echo?\n" in out
    assert f"{lacks} argument txt, which echo does not have; did you mean text?\n" in out
    assert re.search(r"gone\n    FAILED  .*'nosuchcommand' not found on PATH; install it or give the full path", out)
    assert re.search(r"far\n    FAILED  .*connection refused by 127\.0\.0\.1:9; is the server running\?", out)
    assert "\nsome checks failed: see above\nafter fixing them: isthmus check " in out


# --- wrap and serve -------------------------------------------------------------------------------------------------


def test_wrap_serves_a_command() -> None:
    """The banner names the server and shows what to paste, and that works."""
    with Run("wrap", *ANY_PORT, "--env", "GREETING=hello", "--", *TOOLBOX, "mybox") as wrapped:
        url = wrapped.wait_url()
        base_url = url.removesuffix("/mcp")
        paste = json.loads(wrapped.wait_line(r'^ +(\{"mcpServers".*"url".*)')[1])
        assert re.search(rf"^isthmus \S+ listens on {base_url}$", wrapped.stdout, re.MULTILINE)
        assert "    server  mybox 1.2\n" in wrapped.stdout
        assert cells_of(wrapped.stdout, "toolbox.py")[1:] == ["ready", f"stdio {LATEST_LEGACY}", "6", url]
        assert wrapped.wait_line("connect a client: (.*)")[1] == f"isthmus connect-info cursor --url {base_url}"
        assert paste["mcpServers"] == {"toolbox.py": {"url": url}}
        session = Session(url)
        assert session.call("echo", text="hi") == "mybox says hi"
        assert "GREETING" in json.loads(session.call("environment"))["names"]
        wrapped.wait_line(r"info    toolbox.py: tools/call environment ok in \S+ ms \(t 0, \w{6}\)$", "stderr")


def test_wrap_passes_on_what_it_does_not_inspect() -> None:
    """The session of a proxy before a proxy is that of the inner one."""
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX, "mybox") as inner:
        url = inner.wait_url()
        with Run("wrap", *ANY_PORT, "--no-inspect", url) as outer:
            session = Session(outer.wait_url())
            assert session.call("echo", text="hi") == "mybox says hi"
            assert f"    server  transparent, at {url}\n" in outer.stdout
            assert outer.stderr == "", "what is not inspected is not told"


def test_what_speaks_websocket_alone_is_shown_with_such_a_url() -> None:
    with Run("wrap", *ANY_PORT, "--no-inspect", "ws://127.0.0.1:1/ws") as wrapped:
        url = wrapped.wait_line(r"^127.0.0.1-1 .* (ws://127\.0\.0\.1:\d+/mcp)$")[1]
        assert json.loads(wrapped.wait_line(r'(\{"mcpServers".+"url".+)')[1]) == {
            "mcpServers": {"127.0.0.1-1": {"url": url}}
        }


def test_wrap_hides_tools() -> None:
    options = ["--include-tool", "e*", "--include-tool", "ask", "--exclude-tool", "environment"]
    with Run("wrap", *ANY_PORT, *options, "--", *TOOLBOX) as wrapped:
        session = Session(wrapped.wait_url())
        assert cells_of(wrapped.stdout, "toolbox.py")[3] == "2"
        assert session.call("echo", text="hi") == "toolbox says hi"
        refused = session.post(call_message(2, "environment"))
        assert refused["error"] == {"code": -32602, "message": "Unknown tool: environment"}


def test_wrap_refuses_an_empty_name_of_a_tool(inside: Inside) -> None:
    code, _, err = inside("wrap", "--exclude-tool", "", "http://h/")
    assert code == 2
    assert "got --include-tool or --exclude-tool with an empty value, expected a name, or a pattern" in err


@pytest.mark.parametrize("program", [str(ISTHMUS), "/nonexistent/isthmus", "/usr/lib/cli.py"])
def test_what_to_paste_names_the_program_in_full(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's full path is shown, however it was started."""
    monkeypatch.setattr(sys, "argv", [program])
    assert banner.own_path() == str(ISTHMUS)


def test_the_banner_says_who_can_reach_it_and_how(tmp_path: Path) -> None:
    known = {"host": "0.0.0.0", "port": 0, "public_base_url": "https://mcp.example/x"}
    path = configuration(tmp_path, [{"id": "a", "upstream": {"command": TOOLBOX}}], core=known)
    with Run("serve", "--allow-anonymous", str(path)) as served:
        served.wait_line(r"^isthmus \S+ listens on http://127\.0\.0\.1:\d+$")
        served.wait_line("^WARNING open to other machines, as 0.0.0.0, and nobody is asked who they are$")
        served.wait_line("^WARNING reachable from other machines: an anonymous client of revision")
        assert served.wait_url() == "https://mcp.example/x/mcp"
        assert served.wait_line(r'"url":"(.*?)"')[1] == "https://mcp.example/x/mcp"


@pytest.mark.parametrize(
    "host, is_ours",
    [
        *((host, True) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.0.1", "gateway.test")),
    ],
)
def test_which_hosts_are_open_to_other_machines(host: str, is_ours: bool) -> None:
    assert is_loopback(host_of(host)) == is_ours


def test_wrap_takes_options_for_hosts_and_origins() -> None:
    with Run(
        "wrap", *ANY_PORT, "--allow-host", "gateway.test", "--allow-origin", "https://page.test", "--", *TOOLBOX
    ) as wrapped:
        url = wrapped.wait_url()
        body = json.dumps(INITIALIZE).encode()
        known = {"Content-Type": "application/json", "Accept": "application/json", "Host": "gateway.test"}
        assert request("POST", url, body, known | {"Origin": "https://page.test"})[0] == 200
        assert request("POST", url, body, known | {"Origin": "https://other.test"})[0] == 403
        assert request("POST", url, body, known | {"Host": "other.test"})[0] == 403


def test_the_environment_is_handed_on_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_TEST_VARIABLE", "1")
    for options, is_known in ((), False), (("--inherit-env",), True):
        with Run("wrap", *ANY_PORT, *options, "--", *TOOLBOX) as wrapped:
            names = json.loads(Session(wrapped.wait_url()).call("environment"))["names"]
            assert ("ISTHMUS_TEST_VARIABLE" in names) == is_known


def test_a_missing_command_is_reported() -> None:
    """The failure is shown on the screen and to every client; the proxy goes on."""
    with Run("wrap", *ANY_PORT, "--", "nosuchcommand") as wrapped:
        url = wrapped.wait_url()
        failed = unwrapped(wrapped.stdout)
        assert "command 'nosuchcommand' not found on PATH; install it or give the full path" in failed
        for _ in range(2):
            message = Session(url).hello["error"]["message"]
            assert "command 'nosuchcommand' not found on PATH" in message


def test_the_last_words_of_a_child_that_dies_at_start_are_shown() -> None:
    """A hint names the variable that it asks for, and the option that hands it on."""
    dying = "import sys; print('no licen\\x1b[1mse\\x1b[0m key; set THE_KEY', file=sys.stderr); sys.exit(7)"
    with Run("wrap", *ANY_PORT, "--", sys.executable, "-c", dying, env={"THE_KEY": "s3cret"}) as wrapped:
        wrapped.wait_url()
        failed = unwrapped(wrapped.stdout)
        assert "exited with code 7" in failed
        assert "no license key" in failed
        assert "; hint: THE_KEY is set here, but not handed on: use --env THE_KEY\n" in failed
        assert wrapped.stderr == ""  # the failure is reported once
        assert "no server works yet: " in wrapped.stdout
        assert "exited with code 7" in Session(wrapped.wait_url()).hello["error"]["message"]
        wrapped.wait_line("warning python.*: upstream lost: exited with code 7", "stderr")
        wrapped.signal(signal.SIGTERM)
        assert wrapped.wait_exit() == 0


EVIL = r"""
import json, os, sys
FORGED = "nice\x1b]0;title\x07\x1b[2J\r12:00:00 error   forged\n12:00:00 error   forged\x00\x9b31m\u202e\u2028"
os.write(2, FORGED.encode() + b"\xff\n")
for line in sys.stdin:
    asked = json.loads(line)
    os.write(1, FORGED.encode() + b"\xff\n")
    answer = dict(result=dict(protocolVersion="2025-06-18", capabilities=dict(tools=dict()),
                              serverInfo=dict(name=FORGED, version=FORGED)))
    if asked["method"] == "tools/list":
        answer = dict(result=dict(tools=[dict(name=FORGED, inputSchema=dict(type="object"))]))
    if asked["method"] == "initialize" and sys.argv[1:]:
        answer = dict(error=dict(code=-32000, message=FORGED))
    if "id" in asked:
        print(json.dumps(dict(answer, jsonrpc="2.0", id=asked["id"])), flush=True)
"""


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("is_refusing", [False, True])
def test_a_server_can_neither_control_our_terminal_nor_forge_a_line(is_refusing: bool, format: str) -> None:
    """The server writes controls in its name, version, tools and errors, on stderr, and between messages."""
    shared = ("--log-format", format, "--log-level", "debug")
    arguments = ("refusing",) if is_refusing else ()
    with Run("wrap", *shared, *ANY_PORT, "--", sys.executable, "-c", EVIL, *arguments) as wrapped:
        session = Session(wrapped.wait_url())
        wrapped.wait_line("FAILED  .*nice" if is_refusing else r"server  nice\\x1b\]0;title\\x07")
        session.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        wrapped.wait_line("no message.*forged", "stderr")
        wrapped.signal(signal.SIGTERM)
        assert wrapped.wait_exit() == 0
        lines = [*wrapped.stdout.split("\n"), *(logged := wrapped.stderr.split("\n"))]
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("12:00:00 error   forged") for line in lines)
    if format == "json":
        assert all(json.loads(line)["level"] for line in logged)


def test_serve_keeps_what_it_stores_in_its_root(tmp_path: Path) -> None:
    path = configuration(
        tmp_path,
        [{"id": "a", "upstream": {"command": TOOLBOX}}, {"id": "b", "upstream": {"command": TOOLBOX}}],
        storage={"root": "kept"},
    )
    with Run("serve", str(path)) as served:
        base_url = served.wait_line(r"listens on (\S+)$")[1]
        served.wait_line("toolbox is up", "stderr")
        served.wait_url()
        assert Session(f"{base_url}/mcp/b").call("echo", text="hi") == "toolbox says hi"
        code, _, err = run("serve", str(path))
        assert code == 1
        assert (
            f"isthmus: another process uses {tmp_path}/kept/workspaces: "
            "stop it, or give this one a storage root of its own"
        ) in err.splitlines()
        served.signal(signal.SIGINT)
        assert served.wait_exit() == 0
    assert (tmp_path / "kept" / "state" / "link.key").is_file()


# --- The end --------------------------------------------------------------------------------------------------------


class Busy:
    """A wrapped server with a call in flight, which ends when the test lets it."""

    def __init__(self, folder: Path) -> None:
        self.run = Run("wrap", *ANY_PORT, "--", *TOOLBOX, env={"TMPDIR": str(folder)})
        self.folder = folder
        self.until = folder / "until"

    def __enter__(self) -> Busy:
        self.url = self.run.wait_url()
        session = Session(self.url)
        self.child = json.loads(session.call("environment"))["pid"]
        started = self.folder / "started"
        self.answers = in_background(lambda: session.call("wait", started=str(started), until=str(self.until)))
        until(started.exists, "the call has begun")
        return self

    def __exit__(self, *error: object) -> None:
        self.run.__exit__(*error)

    def wait_draining(self) -> None:
        """Waits until the proxy listens no more. It looks the socket up instead of connecting, as a connection at
        that very moment may be accepted and never answered."""
        port = urlsplit(self.url).port
        assert port is not None
        until(lambda: f":{port:04X} 00000000:0000 0A" not in Path("/proc/net/tcp").read_text(), "it drains")


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)],
    ids=lambda numbers: " ".join(number.name for number in numbers),
)
def test_a_signal_lets_the_call_in_flight_finish(numbers: tuple[signal.Signals, ...], tmp_path: Path) -> None:
    """A signal may come several times, as from `timeout` or a process group."""
    with Busy(tmp_path) as busy:
        busy.run.signal(numbers[0])
        busy.wait_draining()
        for number in numbers[1:]:
            busy.run.signal(number)
        assert list(busy.answers) == []
        busy.until.touch()
        assert busy.run.wait_exit() == 0
        until(lambda: busy.answers, "the call is answered")
        assert list(busy.answers) == ["waited"]
        assert {line.split()[1] for line in busy.run.stderr.splitlines()} == {"info"}
        assert not is_alive(busy.child)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("isthmus-")]


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)])
def test_a_second_signal_ends_at_once(numbers: tuple[signal.Signals, signal.Signals], tmp_path: Path) -> None:
    """The call gets no answer, and no child is left behind."""
    with Busy(tmp_path) as busy:
        busy.run.signal(numbers[0])
        busy.wait_draining()
        time.sleep(signals.SAME_SIGNAL_S)
        busy.run.signal(numbers[1])
        assert busy.run.wait_exit() == -numbers[1]
        assert "Traceback" not in busy.run.stderr
        until(lambda: not is_alive(busy.child), "the guard has ended the child")


def test_a_run_that_is_to_outlive_its_terminal_does() -> None:
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX, through=["nohup"]) as wrapped:
        url = wrapped.wait_url()
        wrapped.signal(signal.SIGHUP)
        assert Session(url).call("echo", text="hi") == "toolbox says hi"
        wrapped.signal(signal.SIGTERM)
        assert wrapped.wait_exit() == 0


@pytest.mark.parametrize(
    "command, code",
    [
        (("serve", "isthmus.json"), 0),
        (("wrap", *ANY_PORT, "--", "cmd"), 0),
        (("wrap", "--listen", "stdio", "--", "cmd"), 0),
        (("check", "isthmus.json"), 1),
        (("demo",), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_signals_are_handled_before_there_is_anything_to_clean_up(
    command: tuple[str, ...], code: int, inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextlib.asynccontextmanager
    async def starting(*_: object, **__: object) -> AsyncIterator[None]:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep(20)
        yield

    configuration(tmp_path, [{"id": "box", "upstream": {"command": TOOLBOX}}])
    for module in (checking, serving, demo):
        monkeypatch.setattr(module, "running", starting)
    handler = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nobody hears the signal"))
    try:
        assert inside(*command)[0] == code
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_a_signal_ends_a_check_that_waits(tmp_path: Path) -> None:
    path = configuration(tmp_path, [{"id": "slow", "upstream": {"command": ["sh", "-c", "cat >/dev/null"]}}])
    with Run("check", str(path), env={"TMPDIR": str(tmp_path)}) as checking:
        checking.wait_line("starting slow", "stderr")
        checking.signal(signal.SIGTERM)
        assert checking.wait_exit() == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("isthmus-")]


# --- On stdin and stdout --------------------------------------------------------------------------------------------


def test_wrap_on_stdio_carries_a_conversation_and_ends_with_its_input(tmp_path: Path) -> None:
    """A command behind HTTP behind stdio is what the second line to paste runs."""
    with Run("wrap", *ANY_PORT, "--", *TOOLBOX) as far:
        for target in ([far.wait_url()], ["--", *TOOLBOX]):
            with Run("wrap", "--listen", "stdio", *target) as near:
                near.write(INITIALIZE, INITIALIZED, call_message(2, "echo", text="over"), end=True)
                assert near.wait_exit() == 0
                hello, answer = map(json.loads, near.stdout.splitlines())
                assert hello["result"]["serverInfo"]["name"] == "toolbox"
                assert answer["result"]["content"][0]["text"] == "toolbox says over"
                assert near.stderr == ""


def test_a_signal_lets_the_call_on_stdio_finish(tmp_path: Path) -> None:
    started, go_on = tmp_path / "started", tmp_path / "until"
    with Run("wrap", "--listen", "stdio", "--", *TOOLBOX) as wrapped:
        wrapped.write(INITIALIZE, INITIALIZED)
        wrapped.wait_line('"id":1')
        wrapped.write(call_message(2, "wait", started=str(started), until=str(go_on)))
        until(started.exists, "the call has begun")
        wrapped.signal(signal.SIGTERM)
        ids = itertools.count(3)

        def is_draining() -> bool:
            wrapped.write({"jsonrpc": "2.0", "id": next(ids), "method": "tools/list"})
            return "shutting down: no new requests" in wrapped.stdout

        until(is_draining, "it takes no new requests")
        assert "waited" not in wrapped.stdout
        go_on.touch()
        assert wrapped.wait_exit() == 0
        assert "waited" in wrapped.stdout


def test_a_missing_upstream_is_reported_on_stdio() -> None:
    with Run("wrap", "--listen", "stdio", "http://127.0.0.1:9/mcp") as wrapped:
        wrapped.write(INITIALIZE, end=True)
        assert wrapped.wait_exit() == 0
        error = json.loads(wrapped.stdout)["error"]
        assert "connection refused by 127.0.0.1:9; is the server running?" in error["message"]


# --- demo and logs --------------------------------------------------------------------------------------------------


def test_the_demo_shows_every_step() -> None:
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    steps = re.findall(r"^(\d)\. ", out, re.MULTILINE)
    assert steps == ["1", "2", "3", "4", "5", "6", "7"]
    assert "isthmus.txt has 9 words" in out
    assert "\ndone: the client uploaded a file and received a report\nnext, " in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_demo_that_fails_says_where(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TEXT", b"too short")
    code, out, err = inside("demo")
    assert code == 1
    assert "isthmus.txt has 2 words" in out
    assert err == "the demo failed: expected that the server opened the uploaded file"


def test_log_lines_carry_what_went_wrong(capsys: pytest.CaptureFixture[str], inside: Inside) -> None:
    for format in ("text", "json"):
        logs.set_up("info", format)
        logger = logging.getLogger("isthmus.test")
        logger.debug("too quiet")
        try:
            raise ValueError("the reason")
        except ValueError:
            logger.exception("it failed: %s", "twice")
        logged = capsys.readouterr().err
        assert "too quiet" not in logged
        if format == "text":
            assert re.match(r"\d\d:\d\d:\d\d error   it failed: twice\n    Traceback", logged)
        else:
            line = json.loads(logged)
            assert (line["level"], line["logger"], line["message"]) == ("error", "isthmus.test", "it failed: twice")
            assert line["exception"].endswith("ValueError: the reason")


def test_json_logs_are_json() -> None:
    dying = "import sys; print('broken ☂', file=sys.stderr); sys.exit(7)"
    with Run(
        "--log-format", "json", "wrap", "--log-level", "debug", *ANY_PORT, "--", sys.executable, "-c", dying
    ) as it:
        it.wait_line("FAILED")
        it.signal(signal.SIGTERM)
        assert it.wait_exit() == 0
        lines = [json.loads(line) for line in it.stderr.splitlines()]
    assert {"at", "level", "logger", "message"} <= set(lines[0])
    assert {"info", "warning"} <= {line["level"] for line in lines}
    assert any("broken ☂" in line["message"] for line in lines)


def test_logs_hold_no_payload_and_no_secret(tmp_path: Path) -> None:
    """The property holds at the most verbose level, and when things go wrong."""
    payload, credential = "the-payload-of-this-call", "Bearer the-credential"
    adapter = {"type": "upload_consumer", "tools": ["echo"], "file_path_argument": "text"}
    with Run("wrap", "--log-level", "debug", *ANY_PORT, "--", *TOOLBOX) as far:
        upstream = {"url": far.wait_url(), "headers": {"Authorization": credential}}
        servers: list[Json] = [
            {"id": "far", "upstream": upstream},
            {"id": "near", "upstream": {"command": TOOLBOX}, "adapters": [adapter]},
        ]
        path = configuration(tmp_path, servers, storage={"root": str(tmp_path / "data")})
        with Run("serve", "--log-level", "debug", str(path)) as served:
            base_url = served.wait_line(r"listens on (\S+)$")[1]
            sessions = [Session(f"{base_url}/mcp/{id}") for id in ("far", "near")]
            for session in sessions:
                assert payload in session.call("echo", text=payload)
            helped = sessions[1].post(call_message(5, "near_get_upload_url"))
            link = helped["result"]["structuredContent"]["upload_url"]
            signature = re.search(r"grant=.*\.(.{22})$", link)
            assert signature is not None
            assert request("POST", link[:-4], payload.encode())[0] in (400, 401, 403)
            assert request("POST", link, payload.encode(), {"Content-Type": "text/plain"})[0] >= 200
            for session in sessions:
                assert "error" in session.post(call_message(6, "die", text=payload))
                assert session.id is not None
            request("POST", f"{base_url}/mcp/far", payload.encode(), {"Content-Type": "application/json"})
            served.signal(signal.SIGTERM)
            assert served.wait_exit() == 0
        far.signal(signal.SIGTERM)
        assert far.wait_exit() == 0
    for stderr in (served.stderr, far.stderr):
        assert "toolbox is up" in stderr
        assert "upstream lost" in stderr
        for secret in (payload, credential, "the-credential", signature[1], *(str(session.id) for session in sessions)):
            assert secret not in stderr
