"""The tools, prompts and resources of the scripted server, which use the features of each revision.

A tool is a function of its call. It returns a result, or it is a generator that yields questions, any number at once
under names of its own, and is sent their answers. So one script serves both eras: the handshake revisions ask by
requests, the stateless one replays the script with the answers of a retry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Protocol

Answer = dict[str, Any]
"""`{"result": …}` or `{"error": …}`."""
Questions = dict[str, tuple[str, dict[str, Any]]]
"""Method and params under a name."""
Script = Generator[Questions, dict[str, Answer], dict[str, Any]]
Tool = Callable[["Call"], "dict[str, Any] | Script"]

PICTURE: Final = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
SOUND: Final = base64.b64encode(b"RIFF\0\0\0\0WAVE").decode()
LOGO: Final = "test://files/logo.png"
NOTES: Final = "test://files/notes.txt"


class Failure(Exception):
    """Raised by a tool whose answer is a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Lacking(Exception):
    """Raised by a tool whose question needs a capability that the client has not declared."""


class Call(Protocol):
    """One call of a tool, as the tool sees it."""

    arguments: dict[str, Any]
    knows: frozenset[str]
    """The features of the server's revision."""
    may_ask: frozenset[str]
    """The kinds of questions that the client can be asked."""
    memory: Memory

    def say(self, method: str, params: dict[str, Any]) -> None: ...
    def log(self, level: str, text: str) -> None: ...
    def step(self, done: int, total: int) -> None: ...
    def wait_cancelled(self) -> bool: ...
    def changed(self, method: str, params: dict[str, Any] | None = None) -> None: ...
    def notify_later(self, method: str, params: dict[str, Any]) -> None: ...


class Memory:
    """The state that the process keeps between calls."""

    def __init__(self) -> None:
        self.has_extra_tool = False
        self.cancelled: list[str] = []
        self.visited: set[str] = set()
        self.violations: list[str] = []


def text(content: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}]}


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def need(call: Call, *wanted: str) -> None:
    for name in wanted:
        if name not in call.may_ask:
            raise Lacking(name)


def plain_result(answer: Answer) -> object:
    """Returns a result without members that only its revision adds, or the code of an error."""
    if "error" in answer:
        return {"refused": answer["error"]["code"]}
    return {name: value for name, value in answer["result"].items() if name not in ("_meta", "resultType")}


# --- Plain ------------------------------------------------------------------------------------------------------------


def echo(call: Call) -> dict[str, Any]:
    return text(call.arguments["text"])


def add(call: Call) -> dict[str, Any]:
    total = {"sum": call.arguments["a"] + call.arguments["b"]}
    return {**text(compact(total)), **({"structuredContent": total} if "structured" in call.knows else {})}


def number(call: Call) -> dict[str, Any]:
    return {**text("42"), "structuredContent": 42}


def fail(call: Call) -> dict[str, Any]:
    return {**text("it did not work"), "isError": True}


def missing(call: Call) -> dict[str, Any]:
    raise Failure(4711, "nothing there", {"why": ["é", 1, None], "where": {"line": 7}})


def foreign_code(call: Call) -> dict[str, Any]:
    """Fails with a code that has a meaning of its own in other revisions."""
    raise Failure(-32002, "not a resource", {"of": "old"})


def sound(call: Call) -> dict[str, Any]:
    return {"content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]}


def link(call: Call) -> dict[str, Any]:
    return {"content": [{"type": "resource_link", "uri": NOTES, "name": "notes", "description": "what was noted"}]}


def picture(call: Call) -> dict[str, Any]:
    embedded = {"uri": NOTES, "mimeType": "text/plain", "text": "noted"}
    return {
        "content": [
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            {"type": "resource", "resource": embedded},
        ]
    }


def log(call: Call) -> dict[str, Any]:
    for level in ("debug", "info", "error"):
        call.log(level, f"said at {level}")
    return text("logged")


def progress(call: Call) -> dict[str, Any]:
    steps = call.arguments["steps"]
    for done in range(1, steps + 1):
        call.step(done, steps)
    return text(f"{steps} steps")


def slow(call: Call) -> dict[str, Any]:
    """Waits until it is cancelled, and remembers that. The first step of progress says that it runs."""
    call.step(1, 100)
    if call.wait_cancelled():
        call.memory.cancelled.append(call.arguments["key"])
    return text("cancelled, or waited in vain")


def cancelled_count(call: Call) -> dict[str, Any]:
    return text(str(call.memory.cancelled.count(call.arguments["key"])))


def change_tools(call: Call) -> dict[str, Any]:
    call.memory.has_extra_tool = not call.memory.has_extra_tool
    call.changed("notifications/tools/list_changed")
    return text("changed")


def touch_resource(call: Call) -> dict[str, Any]:
    call.changed("notifications/resources/updated", {"uri": call.arguments["uri"]})
    return text("touched")


def violations(call: Call) -> dict[str, Any]:
    """Returns the violations and clears them."""
    noted, call.memory.violations[:] = list(call.memory.violations), []
    return text(compact(noted))


# --- Asking -----------------------------------------------------------------------------------------------------------


def sampled(prompt: str) -> tuple[str, dict[str, Any]]:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return "sampling/createMessage", {"messages": [message], "maxTokens": 100, "systemPrompt": "be brief"}


def form(message: str, **properties: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return "elicitation/create", {"message": message, "requestedSchema": schema}


ROOTS: Final[tuple[str, dict[str, Any]]] = ("roots/list", {})
PERSON: Final[dict[str, dict[str, Any]]] = {
    "name": {"type": "string", "title": "Your name", "minLength": 1},
    "size": {"type": "integer", "minimum": 1, "maximum": 9},
    "agree": {"type": "boolean", "default": False},
    "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["red", "green"]},
}
TITLED: Final[dict[str, Any]] = {"oneOf": [{"const": "s", "title": "small"}, {"const": "l", "title": "large"}]}
CHOICES: Final[dict[str, dict[str, Any]]] = {
    "size": {"type": "string", "default": "s", **TITLED},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["new", "red"]}, "minItems": 1},
}


def ask_form(call: Call) -> Script:
    need(call, "form")
    answers = yield {"who": form(call.arguments.get("message", "Who are you?"), **PERSON)}
    return text(compact(plain_result(answers["who"])))


def ask_choices(call: Call) -> Script:
    need(call, "form")
    answers = yield {"what": form("Which ones?", **CHOICES)}
    return text(compact(plain_result(answers["what"])))


def visit(call: Call, name: str) -> dict[str, Any]:
    params = {"mode": "url", "message": "Please look", "url": f"https://example.com/{name}"}
    return {**params, "elicitationId": f"visit-{name}"} if "handshake" in call.knows else params


def ask_url(call: Call) -> Script:
    need(call, "url")
    answers = yield {"page": ("elicitation/create", visit(call, "consent"))}
    if "handshake" in call.knows:
        call.say("notifications/elicitation/complete", {"elicitationId": "visit-consent"})
    return text(compact(plain_result(answers["page"])))


def url_first(call: Call) -> dict[str, Any]:
    """Fails until a page was visited. The call is then over, and the visit comes soon."""
    need(call, "url")
    key = call.arguments["key"]
    if key in call.memory.visited:
        return text("visited")
    call.memory.visited.add(key)
    call.notify_later("notifications/elicitation/complete", {"elicitationId": f"visit-{key}"})
    raise Failure(-32042, "a page must be visited first", {"elicitations": [visit(call, key)]})


def ask_sampling(call: Call) -> Script:
    need(call, "sampling")
    answers = yield {"said": sampled(call.arguments.get("prompt", "What is 2 + 2?"))}
    return text(compact(plain_result(answers["said"])))


def ask_roots(call: Call) -> Script:
    need(call, "roots")
    answers = yield {"roots": ROOTS}
    return text(compact(plain_result(answers["roots"])))


def ask_three(call: Call) -> Script:
    """Asks three questions at once. A client without forms is asked for a second sample."""
    need(call, "sampling", "roots")
    third = form("Third?", name=PERSON["name"]) if has_forms(call) else sampled("Third?")
    answers = yield {"one": sampled("First?"), "two": ROOTS, "three": third}
    return text(compact({name: plain_result(answer) for name, answer in answers.items()}))


def has_forms(call: Call) -> bool:
    return "form" in call.may_ask and "form" in call.knows


def ask_rounds(call: Call) -> Script:
    """Asks three questions, one after another. Each one contains the answer before."""
    need(call, "sampling", "roots")
    roots = (yield {"where": ROOTS})["where"]
    where = roots["result"]["roots"][0]["name"]
    sample = (yield {"what": sampled(f"What is in {where}?")})["what"]
    what = sample["result"]["content"]["text"]
    last = form(f"Is it {what}?", name=PERSON["name"]) if has_forms(call) else sampled(f"Is it {what}?")
    third = (yield {"sure": last})["sure"]
    return text(compact([where, what, plain_result(third)]))


class Listed:
    """A tool with its entry in `tools/list`."""

    def __init__(self, run: Tool, *arguments: str, needs: str = "", output: dict[str, Any] | None = None) -> None:
        self.run, self.needs, self._output = run, needs, output
        self._arguments = arguments

    def listed(self, knows: frozenset[str]) -> dict[str, Any]:
        kinds = {"a": "number", "b": "number", "steps": "integer"}
        properties = {name: {"type": kinds.get(name, "string")} for name in self._arguments}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        shown = {"name": self.run.__name__, "description": f"Does {self.run.__name__}.", "inputSchema": schema}
        if self._output is not None and "structured" in knows:
            shown["outputSchema"] = self._output
        return shown


SUM: Final = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}

LISTED: Final = (
    Listed(echo, "text"),
    Listed(add, "a", "b", output=SUM),
    Listed(number, needs="any structure", output={"type": "integer", "minimum": 0}),
    Listed(fail),
    Listed(missing),
    Listed(foreign_code, needs="handshake"),
    Listed(sound, needs="audio"),
    Listed(link, needs="links"),
    Listed(picture),
    Listed(log),
    Listed(progress, "steps"),
    Listed(slow, "key"),
    Listed(cancelled_count, "key"),
    Listed(change_tools),
    Listed(touch_resource, "uri"),
    Listed(violations),
    Listed(ask_form, "message", needs="form"),
    Listed(ask_choices, needs="choices"),
    Listed(ask_url, needs="url"),
    Listed(url_first, "key", needs="url"),
    Listed(ask_sampling, "prompt"),
    Listed(ask_roots),
    Listed(ask_three),
    Listed(ask_rounds),
)


def tools_of(knows: frozenset[str]) -> Mapping[str, Listed]:
    """Returns the tools that a revision can express. `url_first` needs an error that only handshake revisions have."""
    return {
        one.run.__name__: one
        for one in LISTED
        if (not one.needs or one.needs in knows) and (one.run is not url_first or "handshake" in knows)
    }


# --- Prompts and resources --------------------------------------------------------------------------------------------

PROMPTS: Final[list[dict[str, Any]]] = [
    {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}]},
    {"name": "where", "description": "Asks for the roots first."},
]


def greet(call: Call) -> dict[str, Any]:
    content = {"type": "text", "text": f"Greet {call.arguments['who']}"}
    return {"description": "A greeting", "messages": [{"role": "user", "content": content}]}


def where(call: Call) -> Script:
    need(call, "roots")
    answers = yield {"roots": ROOTS}
    content = {"type": "text", "text": compact(plain_result(answers["roots"]))}
    return {"messages": [{"role": "assistant", "content": content}]}


PROMPT_SCRIPTS: Final[Mapping[str, Tool]] = {"greet": greet, "where": where}

RESOURCES: Final[list[dict[str, Any]]] = [
    {"uri": NOTES, "name": "notes", "mimeType": "text/plain"},
    {"uri": LOGO, "name": "logo", "mimeType": "image/png"},
    {"uri": "test://files/empty", "name": "empty"},
]
PAGE_SIZE: Final = 2
SECOND_PAGE: Final = 'page 2 "é"'
TEMPLATES: Final[list[dict[str, Any]]] = [{"uriTemplate": "test://files/{name}", "name": "file"}]
CONTENTS: Final[dict[str, list[dict[str, Any]]]] = {
    NOTES: [{"uri": NOTES, "mimeType": "text/plain", "text": "first line\nsecond line"}],
    LOGO: [{"uri": LOGO, "mimeType": "image/png", "blob": PICTURE}],
    "test://files/empty": [],
}
COMPLETIONS: Final = ["Ada", "Alan", "Albert"]
