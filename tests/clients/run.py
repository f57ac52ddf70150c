"""The journey of a file by released clients of MCP, and a table of what each of them could do: `make clients`.

The journey plays the model. It knows no more than what the agent of the framework is shown, and says only which tool is
called with which arguments. The server is mcp-pandoc behind `isthmus wrap --files`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from released_clients import CLIENTS, Client

TESTS: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "real")]

import filing  # noqa: E402
import rig  # noqa: E402

HERE: Final = Path(__file__).resolve().parent
HOME: Final = rig.REAL / "clients"
INSTALL_TIMEOUT_S: Final = 900.0
ANSWER_TIMEOUT_S: Final = 120.0

NOTES: Final = b"# Notes\n\nThe *second* line has an umlaut: \xc3\xbc.\n"
"""The file of the journey, in Markdown."""


class StepError(Exception):
    """Raised when a step failed: what the agent was shown, or what it lacked."""


# --- A client -------------------------------------------------------------------------------------------------------


class Agent:
    """A running client, asked through the protocol of README.md."""

    def __init__(self, process: rig.Process) -> None:
        self._process = process
        self._read = 0

    def tell(self, document: object) -> None:
        self._process.write_line(json.dumps(document))

    def answer(self) -> Any:
        """Returns the value of the next answer.

        Raises:
            StepError: the client answered with an error.
        """
        self._process.wait_line("", since=self._read, timeout_s=ANSWER_TIMEOUT_S)
        line = json.loads(self._process.lines[self._read])
        self._read += 1
        if "error" in line:
            raise StepError(line["error"])
        return line["value"]

    def ask(self, op: str, **members: Any) -> Any:
        self.tell({"op": op, **members})
        return self.answer()

    def call(self, tool: str, **arguments: Any) -> str:
        text: str = self.ask("call", name=tool, arguments=arguments)
        return text


@contextlib.contextmanager
def started(name: str, client: Client, target: dict[str, Any], folder: Path) -> Iterator[Agent]:
    """Runs a client's script until the block ends."""
    home = HOME / (client.on or name)
    script = HERE / "agents" / client.script
    if client.is_node:
        for source in (HERE / "agents/agent.mjs", script):
            shutil.copy(source, home)  # Node looks for packages beside the script
        newer = home / "node_modules/.bin/node"
        command: list[str | Path] = [newer if newer.exists() else "node", home / client.script, *client.arguments]
    else:
        command = [home / "bin/python", script, *client.arguments]
    process = rig.Process(command, folder=folder, has_stdin=True)
    try:
        agent = Agent(process)
        agent.tell(target)
        yield agent
        process.close_stdin()
        with contextlib.suppress(rig.RigError):
            process.wait_exit(timeout_s=20)
    finally:
        shutil.copy(process.log, HOME / f"{name}.log")
        process.clean_up()


# --- The journey ----------------------------------------------------------------------------------------------------


class Journey:
    """The steps, in order. Each returns a remark for the table or raises.

    Args:
        is_http: True if uploads and downloads have a link.
    """

    def __init__(self, agent: Agent, *, is_http: bool) -> None:
        self._agent = agent
        self._is_http = is_http
        self._tools: dict[str, dict[str, Any]] = {}
        self._handle = ""
        self._shown = ""

    def steps(self) -> dict[str, Callable[[], str]]:
        return {
            "connect": self.connect,
            "list": self.list,
            "link": self.link,
            "use": self.use,
            "uri": self.uri,
            "chain": self.chain,
            "read": self.read,
            "download": self.download,
        }

    def connect(self) -> str:
        return json.dumps(self._agent.answer())

    def list(self) -> str:
        self._tools = {tool["name"]: tool for tool in self._agent.ask("tools")}
        description = self._tools[self._named("convert")]["description"]
        if "upload" not in description:
            raise StepError(f"the description has no note: {description!r}")
        return " ".join(self._tools)

    def link(self) -> str:
        """A tool gives a link, the agent's other tools POST the file to it."""
        shown = self._agent.call(self._named("get_upload_url"), filename="notes.md")
        url = _found(r"http://[^\s\"'<>\\]+/upload/[^\s\"'<>\\]+", shown)
        reply = filing.post(url, ("notes.md", NOTES))
        if reply.status != 200:
            raise StepError(f"POST: {reply.status} {reply.body.decode()}")
        self._handle = reply.json["upload_handle"]
        return self._handle

    def use(self) -> str:
        self._need(self._handle)
        self._shown = self._agent.call(
            self._named("convert"),
            input_file=self._handle,
            input_format="markdown",
            output_format="html",
            output_file="notes.html",
        )
        if "success" not in self._shown:
            raise StepError(self._shown)
        return self._shown

    def uri(self) -> str:
        self._need(self._shown)
        return self._artifact

    def chain(self) -> str:
        """The file that one call made goes into the next."""
        self._need(self._shown)
        shown = self._agent.call(
            self._named("convert"), input_file=self._artifact, input_format="html", output_format="rst"
        )
        if "*second*" not in shown:
            raise StepError(shown)
        return shown

    def read(self) -> str:
        self._need(self._shown)
        return _same(bytes.fromhex(self._agent.ask("read", uri=self._artifact)))

    def download(self) -> str:
        self._need(self._shown)
        url = _found(r"http://[^\s\"'<>\\)\]]+/artifacts/[^\s\"'<>\\)\]]+", self._shown)
        reply = filing.fetch(url)
        if reply.status != 200:
            raise StepError(f"GET: {reply.status} {reply.body.decode()}")
        return _same(reply.body)

    @property
    def _artifact(self) -> str:
        return _found(r"artifact://[^\s\"'<>\\)\]]+", self._shown)

    def _named(self, part: str) -> str:
        """Returns the name that the framework gave a tool."""
        for name in self._tools:
            if part in name:
                return name
        raise StepError(f"no tool has {part!r} in its name: {', '.join(self._tools) or 'none were listed'}")

    def _need(self, what: str) -> None:
        if not what:
            raise StepError("an earlier step failed")


def _found(pattern: str, shown: str) -> str:
    match = re.search(pattern, shown)
    if match is None:
        raise StepError(f"not shown to the agent: {shown!r}")
    return match[0]


def _same(content: bytes) -> str:
    """Compares a file with what pandoc itself makes."""
    command = ["pandoc", "--from", "markdown", "--to", "html"]
    expected = subprocess.run(command, input=NOTES, capture_output=True, check=True, timeout=60).stdout
    if content.strip() != expected.strip():
        raise StepError(f"the file differs: {content!r}, expected {expected!r}")
    return f"{len(content)} bytes"


def travel(name: str, client: Client) -> dict[str, str]:
    """Returns the error of each step, "" where it passed."""
    errors = {}
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        folder = Path(root)
        server = [rig.require(rig.PANDOC)]
        if client.transport == "http":
            proxy = stack.enter_context(rig.wrap(*server, folder=folder, options=["--files"], asks=True))
            target: dict[str, Any] = {"url": proxy.url}
        else:
            command = rig.stdio_wrap(*server, options=["--files"])
            target = {"command": command[0], "args": command[1:], "env": dict(os.environ)}
        agent = stack.enter_context(started(name, client, target, folder))
        journey = Journey(agent, is_http=client.transport == "http")
        for step, take in journey.steps().items():
            try:
                remark = take()
                errors[step] = ""
                print(f"{name} {step}: {remark[:1500]}", file=sys.stderr)
            except (StepError, rig.RigError) as error:
                errors[step] = str(error)
                print(f"{name} {step} FAILED: {error}", file=sys.stderr)
                if step == "connect":
                    break
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    options = parser.parse_args()
    for name in options.only or CLIENTS:
        client = CLIENTS[name]
        _install(client.on or name, CLIENTS[client.on or name])
        errors = travel(name, client)
        print(name, {step: error or "ok" for step, error in errors.items()})
    return 0


def _install(name: str, client: Client) -> None:
    """Installs the packages of a client, unless they are there."""
    folder, stamp, wanted = HOME / name, HOME / f"{name}.installed", " ".join(client.packages)
    if stamp.exists() and stamp.read_text(encoding="utf-8").strip() == wanted:
        return
    print(f"installing {wanted} …", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if client.is_node:
        (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        command = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--save-exact"]
    else:
        if not (folder / "bin/python").exists():
            venv.create(folder, with_pip=True)
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--no-compile", "--quiet"]
        command.append("--disable-pip-version-check")
    command += client.packages
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S, stdout=sys.stderr)
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
