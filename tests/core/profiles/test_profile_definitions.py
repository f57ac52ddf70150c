"""Dialogues about definitions that differ from the approved ones, at a profile: G1 to G12.

The server alpha is shown at two profiles: `all` lists its tools, and at `search` clients search for them. What is not
in the list is not found, and cannot be called by its name or by one of the tools that call others.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from definition_scenes import DELETE, DENIED, EVIL, FOUND, SEARCH, UNKNOWN, pins
from dialogue import Dialogue
from dialogue_peers import Client
from expected_values import Containing
from isthmus.core import ChannelId, Era, Kind, NameFilter, Profile, ProfileServer, ServerPlan
from isthmus.core.base.governance import Cleaning, Override, Shown
from isthmus.core.base.plan import AccessRule, AccessRules
from profile_scenes import CAN, greeted

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
READ_ONLY: Final = {"annotations": {"readOnlyHint": True}}
SENT: Final = "sent"
"""The outcome of a call that has reached the server."""
UNFIT: Final = "unfit"
"""The outcome of a call that its tool does not carry out."""


class Scene:
    """A client of each profile, of one era, and the server.

    Args:
        plan: settings of the server.
    """

    def __init__(self, era: Era = Era.HANDSHAKE, **plan: Any) -> None:
        servers = (ProfileServer("alpha"),)
        profiles = Profile("all", servers), Profile("search", servers, has_search=True)
        plan = {"kind": Kind.PIPE, "era": Era.HANDSHAKE} | plan
        self.play = Dialogue(ServerPlan(id="alpha", **plan), profiles=profiles)
        self.alpha = self.play.server
        down = "pipe" if era is Era.HANDSHAKE else "http"
        self.lister = greeted(self.play, "alice", down=down, era=era, server="all")
        self.searcher = greeted(self.play, "bob", down=down, era=era, server="search")
        self.channels: list[ChannelId] = []

    def take(self, client: Client) -> Any:
        """Returns the answer that has come to a client."""
        (came,) = [each for each in self.play.unexpected if each.peer is client and each.verb == "is answered"]
        self.play.unexpected.remove(came)
        return came.what

    def ask(self, client: Client, tool: str = "", **arguments: Any) -> None:
        """Sends a call of a tool, or a request for the list."""
        if tool:
            client.asks("tools/call", {"name": tool, "arguments": arguments})
        else:
            client.asks("tools/list")

    def names(self, *tools: Any) -> list[str]:
        """Returns the names that are listed, which are those that are found. The server is asked if it gives tools."""
        found = []
        for client in (self.lister, self.searcher):
            self.ask(client, *(["search_tools"] if client is self.searcher else []), query="")
            if tools:
                self.alpha.starts(able=CAN)
                self.channels.append(self.alpha.channel)
                self.alpha.answers(self.alpha.is_asked("tools/list"), {"tools": list(tools)})
            result = self.take(client)["result"]
            shown = result["tools"] if client is self.lister else result["structuredContent"]["more"]
            found.append([tool["name"] for tool in shown])
        assert found[0] == found[1]
        self.play.finish()
        return found[0]

    def changes(self, *tools: Any) -> None:
        """Lets the server say on all legs that it has these tools now. They are read again."""
        for channel in self.channels:
            self.alpha.notifies("tools/list_changed", on=channel)
        self.play.waits(0.3)
        for _ in self.channels:
            received = self.alpha.is_asked("tools/list")
            others, self.play.unexpected = self.play.unexpected, []
            self.alpha.answers(received, {"tools": list(tools)})
            # Whether the client is told is the matter of other tests.
            self.play.unexpected = others + [each for each in self.play.unexpected if each.verb != "is notified"]

    def outcomes(self, name: str) -> list[Any]:
        """Returns the outcomes of a call by name at each profile, and of one by each of the tools that call others."""
        return [
            self.outcome(self.lister, name),
            self.outcome(self.searcher, name),
            self.outcome(self.searcher, "call_tool", name=name),
            self.outcome(self.searcher, "call_read_only_tool", name=name),
        ]

    def outcome(self, client: Client, tool: str, **arguments: Any) -> Any:
        self.ask(client, tool, **arguments)
        sent = [each for each in self.play.unexpected if each.peer is self.alpha]
        if sent:
            received = self.alpha.is_asked("tools/call")
            self.alpha.answers(received, FOUND)
        answer = self.take(client)
        self.play.finish()
        if "error" in answer:
            return answer["error"]["code"]
        return SENT if sent else UNFIT if answer["result"].get("isError") else answer


def refused(code: int) -> list[Any]:
    """Returns the outcomes of calls that are refused in any way. A tool that is not listed is not read-only, either."""
    return [code, code, code, UNFIT]


ANY_WAY: Final = [SENT, SENT, SENT, UNFIT]
"""The outcomes of calls of a tool that may change something."""


@ERAS
def test_g1_g8_a_description_that_changes_is_refused_in_any_way(era: Era) -> None:
    scene = Scene(era, pins=pins(SEARCH, DELETE))
    assert scene.names(SEARCH, DELETE) == ["alpha__delete", "alpha__search"]
    assert scene.outcomes("alpha__search") == ANY_WAY
    scene.changes(EVIL, DELETE)
    assert scene.names() == ["alpha__delete"]
    assert scene.outcomes("alpha__search") == refused(DENIED)
    assert scene.outcomes("alpha__delete") == ANY_WAY
    scene.changes(SEARCH, DELETE)
    assert scene.names() == ["alpha__delete", "alpha__search"]
    assert scene.outcomes("alpha__search") == ANY_WAY


@ERAS
def test_g2_a_description_that_changes_is_refused_before_it_is_listed_again(era: Era) -> None:
    """The list that the profile has kept does not count."""
    scene = Scene(era, pins=pins(SEARCH | READ_ONLY))
    scene.names(SEARCH | READ_ONLY)
    assert scene.outcomes("alpha__search") == [SENT] * 4
    for client, channel, tool in (
        (scene.lister, scene.channels[0], "alpha__search"),
        (scene.searcher, scene.channels[1], "call_tool"),
    ):
        scene.alpha.notifies("tools/list_changed", on=channel)
        scene.ask(client, tool, **({"name": "alpha__search"} if tool.startswith("call") else {}))
        scene.alpha.answers(scene.alpha.is_asked("tools/list"), {"tools": [EVIL | READ_ONLY]})
        assert scene.take(client)["error"]["code"] == DENIED


@ERAS
def test_g3_g4_a_tool_that_is_new_or_renamed_is_not_there(era: Era) -> None:
    renamed = SEARCH | {"name": "find"}
    scene = Scene(era, pins=pins(SEARCH, hides_new=True))
    assert scene.names(renamed, DELETE) == []
    for name in ("alpha__find", "alpha__delete", "alpha__search"):
        assert scene.outcomes(name) == refused(UNKNOWN)
    scene = Scene(era, pins=pins(SEARCH))
    assert scene.names(renamed, DELETE) == ["alpha__delete", "alpha__find"]
    assert scene.outcomes("alpha__find") == ANY_WAY


@pytest.mark.parametrize(
    "changed",
    [{"inputSchema": {"type": "object", "additionalProperties": True}}, {"annotations": {"readOnlyHint": False}}],
    ids=["g5", "g6"],
)
def test_g5_g6_a_wider_schema_and_another_annotation_are_refused(changed: Any) -> None:
    scene = Scene(pins=pins(SEARCH | READ_ONLY))
    assert scene.names(SEARCH | READ_ONLY) == ["alpha__search"]
    scene.changes(SEARCH | READ_ONLY | changed)
    assert scene.names() == []
    assert scene.outcomes("alpha__search") == refused(DENIED)


def test_g6_a_tool_that_may_not_be_read_only_any_more_is_not_called_as_such() -> None:
    """No pin is needed for that. It is not known from the notification of the server until the list is read again."""
    scene = Scene()
    scene.names(SEARCH | READ_ONLY)
    assert scene.outcomes("alpha__search") == [SENT] * 4
    scene.changes(SEARCH)
    assert scene.outcomes("alpha__search") == ANY_WAY
    scene.changes(SEARCH | READ_ONLY)
    assert scene.outcomes("alpha__search") == [SENT] * 4
    scene.alpha.notifies("tools/list_changed", on=scene.channels[1])
    assert scene.outcomes("alpha__search") == ANY_WAY


@ERAS
def test_g7_a_tool_that_was_never_listed_is_judged_all_the_same(era: Era) -> None:
    scene = Scene(era, pins=pins(SEARCH))
    for client, tool in ((scene.lister, "alpha__search"), (scene.searcher, "call_tool")):
        scene.ask(client, tool, **({"name": "alpha__search"} if tool == "call_tool" else {}))
        scene.alpha.starts(able=CAN)
        scene.alpha.answers(scene.alpha.is_asked("tools/list"), {"tools": [EVIL]})
        assert scene.take(client)["error"]["code"] == DENIED
    assert scene.outcomes("alpha__search") == refused(DENIED)


def test_g10_a_description_with_the_date_in_it_can_be_ignored() -> None:
    scene = Scene(pins=pins(SEARCH, ignore=("description",)))
    assert scene.names(EVIL) == ["alpha__search"]
    assert scene.outcomes("alpha__search") == ANY_WAY
    scene.changes(EVIL | {"inputSchema": {"type": "object", "title": "x"}})
    assert scene.names() == []
    assert scene.outcomes("alpha__search") == refused(DENIED)


HIDDEN: Final = SEARCH | {"description": "Sear\u200bches.\u202e\U000e0041"}


@ERAS
def test_g11_invisible_characters_are_in_no_text_and_names_stay(era: Era) -> None:
    property_ = {"type": "string", "enum": ["a\u200b"], "description": "Na\u200bme"}
    tool = HIDDEN | {"inputSchema": {"type": "object", "properties": {"na\u200bme": property_}}}
    scene = Scene(era, clean=Cleaning.CLEAN)
    scene.names(tool)
    scene.ask(scene.lister)
    (listed,) = scene.take(scene.lister)["result"]["tools"]
    scene.ask(scene.searcher, "search_tools", query="searches")
    (found,) = scene.take(scene.searcher)["result"]["structuredContent"]["tools"]
    assert listed == found
    assert listed["description"] == "Searches."
    assert listed["inputSchema"]["properties"] == {"na\u200bme": property_ | {"description": "Name"}}
    assert scene.outcomes("alpha__search") == ANY_WAY


@ERAS
def test_g11_a_tool_with_invisible_characters_can_be_refused(era: Era) -> None:
    scene = Scene(era, clean=Cleaning.BLOCK)
    assert scene.names(HIDDEN, DELETE) == ["alpha__delete"]
    assert scene.outcomes("alpha__search") == refused(DENIED)
    assert scene.outcomes("alpha__delete") == ANY_WAY


@ERAS
def test_g11_instructions_have_no_invisible_characters(era: Era) -> None:
    scene = Scene(era, clean=Cleaning.CLEAN)
    scene.ask(scene.lister, "alpha__search")
    scene.alpha.starts(able=CAN, instructions="Be\u200b good.")
    scene.alpha.answers(scene.alpha.is_asked("tools/call"), FOUND)
    scene.take(scene.lister)
    carol = scene.play.client("carol", "http", server="all", era=era)
    asked = carol.greets() if era is Era.HANDSHAKE else carol.asks("server/discover")
    carol.is_answered(asked, Containing({"instructions": "## alpha\n\nBe good."}))


RENAMED: Final = Shown(
    overrides=(Override(tool="delete", rename="tidy"), Override(tool="search", rename="delete_all")),
    first_sentence=True,
)


@ERAS
def test_g12_rules_speak_of_the_servers_name_behind_alias_and_rename(era: Era) -> None:
    """A pattern hides what the server calls so, whatever clients see. So do pins, access rules and decisions."""
    for rules in (
        {"tools": NameFilter(exclude=("del*",))},
        {"access": AccessRules(tools=(("del*", AccessRule(groups=("admin",))),))},
        {"pins": pins(SEARCH, hides_new=True)},
    ):
        scene = Scene(era, shown=RENAMED, **rules)
        assert scene.names(EVIL if "pins" not in rules else SEARCH, DELETE) == ["alpha__delete_all"]
        for name in ("alpha__tidy", "alpha__delete", "alpha__search", "tidy", "delete"):
            assert scene.outcomes(name) == refused(UNKNOWN), name
        assert scene.outcomes("alpha__delete_all") == ANY_WAY
        scene.ask(scene.searcher, "search_tools", query="alpha__delete_all")
        (found,) = scene.take(scene.searcher)["result"]["structuredContent"]["tools"]
        assert found["description"] == "Searches."


def test_what_was_stored_under_other_pins_is_not_shown() -> None:
    """A list that outlasts the proxy is one for the pins that held as it was read."""
    records: dict[str, bytes] = {}
    for rules, expected in ((None, ["alpha__search"]), (pins(SEARCH), [])):
        profile = Profile("all", (ProfileServer("alpha"),), keeps_lists=True)
        play = Dialogue(ServerPlan(id="alpha", kind=Kind.PIPE, pins=rules), profiles=(profile,))
        play.records |= records
        alice = greeted(play, "alice", down="pipe")
        tools = alice.asks("tools/list")
        play.server.starts(able=CAN)
        play.server.answers(play.server.is_asked("tools/list"), {"tools": [EVIL]})
        alice.is_answered(tools, {"tools": [Containing({"name": name}) for name in expected]})
        records = play.records


@ERAS
def test_prompts_and_resources_are_judged_at_a_profile_too(era: Era) -> None:
    prompt = {"name": "greet", "description": "Greets."}
    note = {"uri": "memo:x", "name": "x", "description": "A note."}
    evil = {"description": "Evil."}
    scene = Scene(era, pins=pins(prompts=[prompt], resources=[note]))
    completion = {"argument": {"name": "who", "value": ""}}
    for method, params, listing, entry in (
        ("prompts/get", {"name": "alpha__greet"}, "prompts/list", prompt),
        ("completion/complete", completion | {"ref": {"type": "ref/prompt", "name": "alpha__greet"}}, "", {}),
        ("resources/read", {"uri": "alpha+memo:x"}, "resources/list", note),
        ("completion/complete", completion | {"ref": {"type": "ref/resource", "uri": "alpha+memo:x"}}, "", {}),
    ):
        asking = scene.lister.asks(method, params)
        if method == "prompts/get":
            scene.alpha.starts(able=CAN)
        if listing:
            kind = listing.partition("/")[0]
            scene.alpha.answers(scene.alpha.is_asked(listing), {kind: [entry | evil]})
        if method == "resources/read":
            scene.alpha.answers(scene.alpha.is_asked("resources/templates/list"), {"resourceTemplates": []})
        scene.lister.is_answered(asking, error=DENIED)
    scene.play.finish()
