"""The journey of a file: the steps, what each of them needs, and how it is judged.

The journey plays the model. It knows no more than what the agent of the framework is shown, and says only which tool is
called with which arguments. Two things it does beside, as other tools of an agent would: it sends a file to an upload
link, and gets one from a download link.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Callable
from typing import Any, Final, Protocol

import filing

NOTES: Final = b"# Notes\n\nThe *second* line has an umlaut: \xc3\xbc.\n"
"""The file of the journey, in Markdown."""
READ: Final = re.compile(r"\*second\*|<em>second<")
"""The file's text after a conversion."""
UNTIL: Final = r"[^\s\"'<>\\)\]]+"
"""The rest of a URI in text, JSON or the code of Python."""


class StepError(Exception):
    """A step failed. The message is what the agent was shown, or what it lacked."""


class NotThere(Exception):
    """A step that the client or the transport has no way to do."""


class Skipped(Exception):
    """A step that needs an earlier one, which failed."""


class Agent(Protocol):
    """A running client."""

    def answer(self) -> Any:
        """Returns the value of the next answer. Raises StepError for an error."""

    def ask(self, op: str, **members: Any) -> Any:
        """Sends a request, and returns the value of its answer."""


class Journey:
    """The steps, in order. Each returns what was seen, or raises StepError, NotThere or Skipped.

    Args:
        is_http: True if there is an address for uploads and downloads.
    """

    STEPS: Final = ("connect", "list", "link", "put", "use", "make", "chain", "read", "download")

    def __init__(self, agent: Agent, *, is_http: bool) -> None:
        self._agent = agent
        self._is_http = is_http
        self._tools: dict[str, dict[str, Any]] = {}
        self._handles: list[str] = []
        self._shown = ""
        self.versions: dict[str, str] = {}

    def step(self, name: str) -> str:
        take: Callable[[], str] = getattr(self, f"_{name}")
        return take()

    def _connect(self) -> str:
        self.versions = self._agent.answer()
        return str(self.versions)

    def _list(self) -> str:
        """The tools are there, and the one that takes files says how they get to it."""
        self._tools = {tool["name"]: tool for tool in self._agent.ask("tools")}
        description = self._tools[self._named("convert")]["description"]
        if "upload" not in description:
            raise StepError(f"the description has no note: {description!r}")
        return " ".join(self._tools)

    def _link(self) -> str:
        """A tool gives a link, to which the agent sends the file."""
        if not self._is_http:
            raise NotThere
        url = _found(f"http://{UNTIL}/upload/{UNTIL}", self._call("get_upload_url", filename="notes.md"))
        reply = filing.post(url, ("notes.md", NOTES))
        if reply.status != 200:
            raise StepError(f"POST: {reply.status} {reply.body.decode()}")
        self._handles += reply.json["upload_handles"]
        return self._handles[-1]

    def _put(self) -> str:
        """A tool takes the file, in two parts."""
        first, second = (base64.b64encode(part).decode() for part in (NOTES[:20], NOTES[20:]))
        shown = self._call("put_file", filename="notes.md", base64=first, more=True)
        match = re.search(r"upload_id\W+([\w:.-]+)", shown)
        if match is None:
            raise StepError(shown)
        shown = self._call("put_file", filename="notes.md", base64=second, append_to=match[1])
        self._handles.append(_found(f"upload://{UNTIL}", shown))
        return self._handles[-1]

    def _use(self) -> str:
        """A tool reads each upload."""
        self._need(self._handles)
        return "\n".join(
            self._convert(input_file=handle, input_format="markdown", output_format="html") for handle in self._handles
        )

    def _make(self) -> str:
        """A tool writes a file, and the agent is shown its URI."""
        formats = {"input_format": "markdown", "output_format": "html"}
        shown = self._call("convert", contents=NOTES.decode(), output_file="notes.html", **formats)
        _found(f"artifact://{UNTIL}", shown)
        self._shown = shown
        return shown

    def _chain(self) -> str:
        """The file that one call made goes into the next."""
        return self._convert(input_file=self._artifact, input_format="html", output_format="markdown")

    def _read(self) -> str:
        """The framework reads the file as a resource."""
        return _same(bytes.fromhex(self._agent.ask("read", uri=self._artifact)))

    def _download(self) -> str:
        """The agent is shown a link, from which it gets the file."""
        self._need(self._shown)
        if not self._is_http:
            raise NotThere
        reply = filing.fetch(_found(f"http://{UNTIL}/artifacts/{UNTIL}", self._shown))
        if reply.status != 200:
            raise StepError(f"GET: {reply.status} {reply.body.decode()}")
        return _same(reply.body)

    def _convert(self, **arguments: str) -> str:
        shown = self._call("convert", **arguments)
        if not READ.search(shown):
            raise StepError(shown)
        return shown

    def _call(self, tool: str, **arguments: Any) -> str:
        self._need(self._tools)
        shown: str = self._agent.ask("call", name=self._named(tool), arguments=arguments)
        return shown

    @property
    def _artifact(self) -> str:
        self._need(self._shown)
        return _found(f"artifact://{UNTIL}", self._shown)

    def _named(self, part: str) -> str:
        """Returns the name that the framework gave a tool."""
        for name in self._tools:
            if part in name:
                return name
        raise StepError(f"no tool has {part!r} in its name: {', '.join(self._tools) or 'none were listed'}")

    def _need(self, what: object) -> None:
        if not what:
            raise Skipped


def _found(pattern: str, shown: str) -> str:
    match = re.search(pattern, shown)
    if match is None:
        raise StepError(f"the agent is shown no {pattern.partition(':')[0]} URI: {shown}")
    return match[0]


def _same(content: bytes) -> str:
    """Compares a file with what pandoc itself makes."""
    command = ["pandoc", "--from", "markdown", "--to", "html"]
    expected = subprocess.run(command, input=NOTES, capture_output=True, check=True, timeout=60).stdout
    if content != expected:
        raise StepError(f"the file differs: {content!r}, expected {expected!r}")
    return f"{len(content)} bytes"
