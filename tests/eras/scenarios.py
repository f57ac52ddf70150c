"""The scenarios of the era tests: a client's actions as plain values, and the expected result for each pair of
revisions.

A scenario is a function of the client. Its expectation is a function of the features of both revisions, and shows what
an era cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from abilities import ABILITIES, K
from rig import until
from scripted_client import Reply, ScriptedClient, filled, value_for
from server_tools import CHOICES, LOGO, NOTES, PERSON, PICTURE, RESOURCES, SECOND_PAGE, SOUND, tools_of

NOT_THERE: Final = "the server has no such tool"
ODD_TEXT: Final = 'é \u2028 😀 \\ " \n {"resultType": "input_required"}'


class Pair(NamedTuple):
    """The revisions of a client and a server that meet."""

    client: str
    server: str

    @property
    def can(self) -> frozenset[str]:
        """The client's features."""
        return ABILITIES[self.client]

    @property
    def knows(self) -> frozenset[str]:
        """The server's features."""
        return ABILITIES[self.server]

    @property
    def is_legacy(self) -> bool:
        """True if the client speaks a handshake revision."""
        return "handshake" in self.can

    @property
    def is_legacy_server(self) -> bool:
        return "handshake" in self.knows

    @property
    def has_forms(self) -> bool:
        return "form" in self.can and "form" in self.knows


class Scenario(NamedTuple):
    act: Callable[[Conversation], object]
    expect: Callable[[Pair], object]


SCENARIOS: Final[dict[str, Scenario]] = {}
"""Scenarios by name, in the order in which one client carries them out."""


class Conversation(ScriptedClient):
    """A client that has begun, and has listed the tools."""

    greeting: Reply
    tools: dict[str, dict[str, Any]]

    def greet(self) -> None:
        self.greeting = self.begin()
        self.tools = {tool["name"]: tool for tool in self.request("tools/list").result["tools"]}

    def listen(self, **wanted: object) -> int | str:
        """Subscribes to changes in the stateless era. Returns the id of the subscription, once it is acknowledged."""
        since = len(self.notifications)
        number = self.start("subscriptions/listen", {"notifications": wanted})
        acknowledged = self.wait_notification("notifications/subscriptions/acknowledged", since)
        assert acknowledged["params"]["notifications"] == wanted
        self._of(acknowledged, number)
        return number

    def _of(self, notification: dict[str, Any], number: int | str) -> None:
        assert notification["params"]["_meta"][K + "subscriptionId"] == number

    def expect_notification(self, method: str, since: int, subscription: int | str | None, **params: object) -> None:
        notification = self.wait_notification(method, since, **params)
        if subscription is not None:
            self._of(notification, subscription)


def scenario(expect: Callable[[Pair], object]) -> Callable[[Callable[[Conversation], object]], Callable[..., object]]:
    def keep(act: Callable[[Conversation], object]) -> Callable[[Conversation], object]:
        SCENARIOS[act.__name__] = Scenario(act, expect)
        return act

    return keep


def always(value: object) -> Callable[[Pair], object]:
    return lambda pair: value


def error_of(reply: Reply) -> object:
    return {name: reply.error.get(name) for name in ("code", "message", "data")}


# --- Handshake --------------------------------------------------------------------------------------------------------


@scenario(
    lambda pair: {
        "revision": pair.client,
        "name": "scripted",
        "instructions": "Ask it anything.",
        "offers": ["logging", "prompts", "resources", "tools"],
    }
)
def handshake(talk: Conversation) -> object:
    result = talk.greeting.result
    revision = result["protocolVersion"] if talk.is_legacy else " ".join(result["supportedVersions"])
    server = result["serverInfo"] if talk.is_legacy else result["_meta"][K + "serverInfo"]
    offers = sorted(set(result["capabilities"]) & {"logging", "prompts", "resources", "tools"})
    return {"revision": revision, "name": server["name"], "instructions": result["instructions"], "offers": offers}


@scenario(lambda pair: {} if pair.is_legacy else -32601)
def ping(talk: Conversation) -> object:
    reply = talk.request("ping")
    return reply.result if talk.is_legacy else reply.error["code"]


@scenario(always(-32601))
def methods_nobody_knows(talk: Conversation) -> object:
    return talk.request("x-vendor/none", {"x": 1}).error["code"]


ONLY_STATELESS: Final = ("server/discover", "subscriptions/listen")
ONLY_SESSIONS: Final = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "ping")


@scenario(lambda pair: [-32601] * len(ONLY_STATELESS if pair.is_legacy else ONLY_SESSIONS))
def methods_of_the_other_era(talk: Conversation) -> object:
    return [talk.request(one, {}).error["code"] for one in (ONLY_STATELESS if talk.is_legacy else ONLY_SESSIONS)]


def may_receive(pair: Pair) -> tuple[str, ...]:
    """Returns methods unknown to the server's revision that it may get: the probe for its era, and one that a client of
    its own era sends on purpose. For a client of the other era the proxy answers those itself."""
    probe = ("server/discover",) if pair.is_legacy_server else ("initialize",)
    if pair.is_legacy != pair.is_legacy_server:
        return probe
    return (*probe, *(ONLY_STATELESS if pair.is_legacy else ONLY_SESSIONS))


# --- Tools ------------------------------------------------------------------------------------------------------------


def _number_schema(pair: Pair) -> object:
    if "any structure" not in pair.knows:
        return NOT_THERE
    schema = {"type": "integer", "minimum": 0}
    if "any structure" in pair.can:
        return schema
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


@scenario(
    lambda pair: {
        "names": sorted(tools_of(pair.knows)),
        "input": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
        "output": _number_schema(pair),
    }
)
def tools_listed(talk: Conversation) -> object:
    output = talk.tools["number"]["outputSchema"] if "number" in talk.tools else NOT_THERE
    return {"names": sorted(talk.tools), "input": talk.tools["add"]["inputSchema"], "output": output}


@scenario(always(ODD_TEXT))
def echo(talk: Conversation) -> object:
    return talk.call("echo", text=ODD_TEXT).text


@scenario(lambda pair: ['{"sum": 3}', {"sum": 3} if "structured" in pair.knows else None])
def structured_output(talk: Conversation) -> object:
    reply = talk.call("add", a=1, b=2)
    return [reply.text, reply.result.get("structuredContent")]


@scenario(
    lambda pair: (
        NOT_THERE
        if "any structure" not in pair.knows
        else [42, 42]
        if "any structure" in pair.can
        else [42, {"result": 42}]
    )
)
def structured_output_that_is_no_object(talk: Conversation) -> object:
    if "number" not in talk.tools:
        return NOT_THERE
    reply = talk.call("number")
    return [json.loads(reply.text), reply.result["structuredContent"]]


@scenario(always([True, "it did not work"]))
def a_tool_that_fails(talk: Conversation) -> object:
    reply = talk.call("fail")
    return [reply.result["isError"], reply.text]


@scenario(always({"code": 4711, "message": "nothing there", "data": {"why": ["é", 1, None], "where": {"line": 7}}}))
def errors_with_code_and_data(talk: Conversation) -> object:
    return error_of(talk.call("missing"))


@scenario(
    lambda pair: (
        NOT_THERE
        if not pair.is_legacy_server
        else [-32002, {"of": "old"}]
        if pair.is_legacy
        else [-32603, {"dev.isthmus/originalCode": -32002}]
    )
)
def error_codes_that_the_client_must_not_see(talk: Conversation) -> object:
    if "foreign_code" not in talk.tools:
        return NOT_THERE
    error = talk.call("foreign_code").error
    data = error["data"]
    kept = data if talk.is_legacy else {name: data[name] for name in data if name == "dev.isthmus/originalCode"}
    return [error["code"], kept]


@scenario(always([-32602, -32602]))
def names_nobody_knows(talk: Conversation) -> object:
    prompt = talk.request("prompts/get", {"name": "nobody"})
    return [talk.call("nobody").error["code"], prompt.error["code"]]


@scenario(
    lambda pair: (
        NOT_THERE if "audio" not in pair.knows else ["audio" if "audio" in pair.can else "resource", "audio/wav", SOUND]
    )
)
def audio(talk: Conversation) -> object:
    if "sound" not in talk.tools:
        return NOT_THERE
    (block,) = talk.call("sound").result["content"]
    inner = block if block["type"] == "audio" else {"data": block["resource"]["blob"], **block["resource"]}
    return [block["type"], inner["mimeType"], inner["data"]]


@scenario(
    lambda pair: (
        NOT_THERE
        if "links" not in pair.knows
        else ["resource_link", NOTES, "notes"]
        if "links" in pair.can
        else ["text", f"notes <{NOTES}>: what was noted"]
    )
)
def links(talk: Conversation) -> object:
    if "link" not in talk.tools:
        return NOT_THERE
    (block,) = talk.call("link").result["content"]
    if block["type"] == "text":
        return ["text", block["text"]]
    return [block["type"], block["uri"], block["name"]]


@scenario(always(["image", PICTURE, "resource", "noted"]))
def pictures_and_embedded_resources(talk: Conversation) -> object:
    image, resource = talk.call("picture").result["content"]
    return [image["type"], image["data"], resource["type"], resource["resource"]["text"]]


# --- Prompts and resources --------------------------------------------------------------------------------------------


@scenario(always([["greet", "where"], "Greet Ada"]))
def prompts(talk: Conversation) -> object:
    names = [prompt["name"] for prompt in talk.request("prompts/list").result["prompts"]]
    got = talk.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}).result
    return [names, got["messages"][0]["content"]["text"]]


@scenario(always([["Alan", "Albert"], 7, True]))
def completions(talk: Conversation) -> object:
    refs: list[dict[str, object]] = [
        {"type": "ref/prompt", "name": "greet"},
        {"type": "ref/resource", "uri": "test://files/{name}"},
    ]
    got = [
        talk.request("completion/complete", {"ref": ref, "argument": {"name": "who", "value": "Al"}}).result
        for ref in refs
    ]
    assert got[0]["completion"] == got[1]["completion"]
    found = got[0]["completion"]
    return [found["values"], found["total"], found["hasMore"]]


@scenario(always([[2, 1], [one["uri"] for one in RESOURCES], SECOND_PAGE, -32602]))
def pages(talk: Conversation) -> object:
    first = talk.request("resources/list").result
    second = talk.request("resources/list", {"cursor": first["nextCursor"]}).result
    assert "nextCursor" not in second
    found = [*first["resources"], *second["resources"]]
    bad = talk.request("resources/list", {"cursor": "nowhere"}).error["code"]
    sizes = [len(first["resources"]), len(second["resources"])]
    return [sizes, [one["uri"] for one in found], first["nextCursor"], bad]


@scenario(always(["first line\nsecond line", PICTURE, [], ["test://files/{name}"]]))
def resources(talk: Conversation) -> object:
    notes, logo, empty = (
        talk.request("resources/read", {"uri": uri}).result["contents"] for uri in (NOTES, LOGO, "test://files/empty")
    )
    templates = talk.request("resources/templates/list").result["resourceTemplates"]
    return [notes[0]["text"], logo[0]["blob"], empty, [one["uriTemplate"] for one in templates]]


@scenario(lambda pair: [-32002 if pair.is_legacy else -32602, {"uri": "test://files/gone é"}])
def a_resource_that_is_missing(talk: Conversation) -> object:
    error = talk.request("resources/read", {"uri": "test://files/gone é"}).error
    return [error["code"], error["data"]]


# --- Log messages, progress, cancellation -----------------------------------------------------------------------------


def _levels(reply: Reply) -> list[str]:
    messages = [
        notification["params"]
        for notification in reply.notifications
        if notification["method"] == "notifications/message"
    ]
    assert all(params["data"] == {"said": f"said at {params['level']}"} for params in messages)
    return [params["level"] for params in messages]


def _unasked(pair: Pair) -> list[str]:
    if not pair.is_legacy:
        return []
    return ["debug", "info", "error"] if pair.is_legacy_server else ["info", "error"]


@scenario(_unasked)
def log_messages_nobody_asked_for(talk: Conversation) -> object:
    """The server decides in sessions. In the stateless era a client that names no level gets no log messages."""
    return _levels(talk.call("log"))


@scenario(always(["info", "error"]))
def log_messages_from_a_level_on(talk: Conversation) -> object:
    if talk.is_legacy:
        assert talk.request("logging/setLevel", {"level": "info"}).result == {}
    else:
        talk.log_level = "info"
    try:
        return _levels(talk.call("log"))
    finally:
        talk.log_level = None


@scenario(
    lambda pair: [
        [token, done, 3, f"step {done}" if "progress texts" in pair.knows else None]
        for token in ("tök", 7)
        for done in (1, 2, 3)
    ]
)
def progress(talk: Conversation) -> object:
    reports: list[dict[str, Any]] = []
    for token in ("tök", 7):
        reply = talk.request("tools/call", {"name": "progress", "arguments": {"steps": 3}}, token=token)
        reports += [
            notification["params"]
            for notification in reply.notifications
            if notification["method"] == "notifications/progress"
        ]
    return [[one["progressToken"], one["progress"], one["total"], one.get("message")] for one in reports]


@scenario(always([]))
def progress_nobody_asked_for(talk: Conversation) -> object:
    return [notification["method"] for notification in talk.call("progress", steps=2).notifications]


@scenario(always({"cancelled": "1", "result": None, "goes on": ODD_TEXT}))
def cancelling(talk: Conversation) -> object:
    """The server gets one cancellation, and no result comes any more."""
    key, since = f"of {id(talk)}", len(talk.notifications)
    number = talk.start("tools/call", {"name": "slow", "arguments": {"key": key}}, token="slow")
    talk.wait_notification("notifications/progress", since, progressToken="slow")
    talk.cancel(number)
    until(lambda: talk.call("cancelled_count", key=key).text != "0", "the server to be told", timeout_s=10)
    count = talk.call("cancelled_count", key=key).text
    answer = talk.answer_to(number)
    result = answer.get("result") if answer is not None else None
    return {"cancelled": count, "result": result, "goes on": talk.call("echo", text=ODD_TEXT).text}


# --- Changes ----------------------------------------------------------------------------------------------------------


@scenario(always([False, True, False]))
def changed_tools(talk: Conversation) -> object:
    """A client with a subscription is notified each time."""
    subscription = None if talk.is_legacy else talk.listen(toolsListChanged=True)
    found = []
    for turn in range(3):
        found.append("extra" in [tool["name"] for tool in talk.request("tools/list").result["tools"]])
        if turn < 2:
            since = len(talk.notifications)
            assert talk.call("change_tools").text == "changed"
            talk.expect_notification("notifications/tools/list_changed", since, subscription)
    if subscription is not None:
        talk.cancel(subscription)
    return found


@scenario(always("told"))
def updated_resources(talk: Conversation) -> object:
    subscription = None
    if talk.is_legacy:
        assert talk.request("resources/subscribe", {"uri": NOTES}).result == {}
    else:
        subscription = talk.listen(resourceSubscriptions=[NOTES])
    since = len(talk.notifications)
    talk.call("touch_resource", uri=NOTES)
    talk.expect_notification("notifications/resources/updated", since, subscription, uri=NOTES)
    if subscription is None:
        assert talk.request("resources/unsubscribe", {"uri": NOTES}).result == {}
    else:
        talk.cancel(subscription)
    return "told"


# --- Questions --------------------------------------------------------------------------------------------------------


def asking(talk: Conversation, tool: str, **arguments: object) -> object:
    """Calls a tool. Returns its reading of the answers, the questions, and the number of rounds."""
    if tool not in talk.tools:
        return NOT_THERE
    since = len(talk.asked)
    reply = talk.call(tool, **arguments)
    if reply.result.get("isError"):
        return {"failed with": reply.text}
    asked = sorted(question["method"] for question in talk.asked[since:])
    return answered(json.loads(reply.text), *asked) | ({} if talk.is_legacy else {"rounds": reply.rounds})


def answered(says: object, *asked: str) -> dict[str, object]:
    return {"says": says, "asked": sorted(asked)}


def expected(
    tool: str, says: Callable[[Pair], object], *asked: str, need: str, rounds: int = 1
) -> Callable[[Pair], object]:
    def expect(pair: Pair) -> object:
        if tool not in tools_of(pair.knows):
            return NOT_THERE
        if need not in pair.can:
            return Naming(need)
        third = ("elicitation/create",) if pair.has_forms else ("sampling/createMessage",)
        methods = [third[0] if method == "third" else method for method in asked]
        return answered(says(pair), *methods) | ({} if pair.is_legacy else {"rounds": rounds})

    return expect


class Naming:
    """Equals the failure of a tool that names a capability, in any wording."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or list(other) != ["failed with"]:
            return False
        return self._name in other["failed with"]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{{'failed with': … {self._name} …}}"


ROOTS_SAID: Final = {"roots": [{"uri": "file:///home/ada", "name": "home é"}]}
FORM_SAID: Final = filled({"message": "", "requestedSchema": {"properties": PERSON}})
CHOICES_SAID: Final = {"action": "accept", "content": {name: value_for(one) for name, one in CHOICES.items()}}
NAME_SAID: Final = {"action": "accept", "content": {"name": "Ada é"}}


def sample_of(prompt: str) -> dict[str, object]:
    content = {"type": "text", "text": f"about: {prompt}"}
    return {"role": "assistant", "content": content, "model": "script", "stopReason": "endTurn"}


@scenario(expected("ask_form", always(FORM_SAID), "elicitation/create", need="form"))
def a_form(talk: Conversation) -> object:
    return asking(talk, "ask_form")


@scenario(expected("ask_form", always({"action": "decline"}), "elicitation/create", need="form"))
def a_form_that_is_declined(talk: Conversation) -> object:
    return asking(talk, "ask_form", message="please decline")


@scenario(expected("ask_choices", always(CHOICES_SAID), "elicitation/create", need="form"))
def a_form_with_choices(talk: Conversation) -> object:
    return asking(talk, "ask_choices")


@scenario(expected("ask_url", always({"action": "accept"}), "elicitation/create", need="url"))
def a_page_to_visit(talk: Conversation) -> object:
    """The elicitation has an id in a session, with which the client is notified of its completion."""
    since, asked = len(talk.notifications), len(talk.asked)
    outcome = asking(talk, "ask_url")
    if talk.is_legacy and len(talk.asked) > asked:
        talk.wait_notification(
            "notifications/elicitation/complete", since, elicitationId=talk.asked[-1]["params"]["elicitationId"]
        )
    return outcome


def _url_first(pair: Pair) -> object:
    if "url_first" not in tools_of(pair.knows):
        return NOT_THERE
    if "url" not in pair.can:
        return Naming("url")
    return {"refused": pair.is_legacy, "visited": "https://example.com/", "says": "visited"}


@scenario(_url_first)
def a_page_to_visit_first(talk: Conversation) -> object:
    """The tool asks by an error in a session, after which the client calls again, and by a question in the stateless
    era."""
    if "url_first" not in talk.tools:
        return NOT_THERE
    key, asked = f"{id(talk)}", len(talk.asked)
    reply = talk.call("url_first", key=key)
    is_refused = reply.frame.get("error", {}).get("code") == -32042
    if is_refused:
        page = reply.error["data"]["elicitations"][0]["url"]
        reply = talk.call("url_first", key=key)
    if reply.result.get("isError"):
        return {"failed with": reply.text}
    if not is_refused:
        page = talk.asked[asked]["params"]["url"]
    return {"refused": is_refused, "visited": page.removesuffix(key), "says": reply.text}


@scenario(expected("ask_sampling", always(sample_of("What is 2 + 2?")), "sampling/createMessage", need="sampling"))
def a_sample(talk: Conversation) -> object:
    return asking(talk, "ask_sampling")


def _refusal(pair: Pair) -> object:
    """Only sessions can carry a refusal. Otherwise the client gets the error itself."""
    if not pair.is_legacy:
        return answered(sample_of("refuse this"), "sampling/createMessage") | {"rounds": 1}
    if not pair.is_legacy_server:
        return Naming("the user said no")
    return answered({"refused": -1}, "sampling/createMessage")


@scenario(_refusal)
def a_sample_that_is_refused(talk: Conversation) -> object:
    return asking(talk, "ask_sampling", prompt="refuse this")


@scenario(expected("ask_roots", always(ROOTS_SAID), "roots/list", need="roots"))
def roots(talk: Conversation) -> object:
    return asking(talk, "ask_roots")


@scenario(always([ROOTS_SAID, ["roots/list"]]))
def a_prompt_that_asks(talk: Conversation) -> object:
    since = len(talk.asked)
    got = talk.request("prompts/get", {"name": "where"}).result
    return [json.loads(got["messages"][0]["content"]["text"]), [one["method"] for one in talk.asked[since:]]]


@scenario(
    expected(
        "ask_three",
        lambda pair: {
            "one": sample_of("First?"),
            "two": ROOTS_SAID,
            "three": NAME_SAID if pair.has_forms else sample_of("Third?"),
        },
        "sampling/createMessage",
        "roots/list",
        "third",
        need="sampling",
    )
)
def three_questions_at_once(talk: Conversation) -> object:
    return asking(talk, "ask_three")


WHAT: Final = "about: What is in home é?"


@scenario(
    expected(
        "ask_rounds",
        lambda pair: ["home é", WHAT, NAME_SAID if pair.has_forms else sample_of(f"Is it {WHAT}?")],
        "roots/list",
        "sampling/createMessage",
        "third",
        need="sampling",
        rounds=3,
    )
)
def three_rounds_of_questions(talk: Conversation) -> object:
    """Each question depends on the answer before."""
    return asking(talk, "ask_rounds")


# --- Rules ------------------------------------------------------------------------------------------------------------


@scenario(always([]))
def rules_broken_towards_the_server(talk: Conversation) -> object:
    """Returns the violations that the server has noted, of rules that no schema can state, and clears them."""
    return json.loads(talk.call("violations").text)
