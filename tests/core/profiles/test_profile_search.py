"""Searches of clients for the tools of a profile: Q1 to Q7."""

from __future__ import annotations

from typing import Any, Final

import pytest
from definition_scenes import pins
from dialogue import Dialogue
from dialogue_peers import Client
from each_row import each_row
from isthmus.core import Kind, NameFilter, Profile, ProfileServer, ServerPlan
from isthmus.core.base.plan import AccessRule, AccessRules
from isthmus.core.search import index
from profile_scenes import OPEN, greeted, meeting, names_of, result_for, serve


def tool(name: str, description: str = "", **rest: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": OPEN} | rest


class Search:
    """A client that searches the tools of alpha and beta."""

    def __init__(self, *alpha: Any, beta: Any = ()) -> None:
        self.play, self.alice, _ = meeting(down="pipe", has_search=True)
        self.tools = {"alpha": list(alpha), "beta": list(beta)}

    def ask(self, query: str, **rest: Any) -> dict[str, Any]:
        return asked(self.play, self.alice, self.tools, query=query, **rest)

    def find(self, query: str, **rest: Any) -> list[str]:
        return names_of(self.ask(query, **rest))


def asked(play: Dialogue, client: Client, tools: Any, **arguments: Any) -> dict[str, Any]:
    """Returns the result of a search."""
    request = client.asks("tools/call", {"name": "search_tools", "arguments": arguments})
    serve(play, tools)
    return result_for(client, request)


def says(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


NAMED: Final = (tool("list_files", "Reads a file, and lists files to read."), tool("read", "x"), tool("read_file", "x"))


@each_row(
    "query, first",
    [
        ("alpha__read", "alpha__read"),
        ("alpha__read_file", "alpha__read_file"),
        ("beta__read_file", "beta__read_file"),
        ("ALPHA__LIST_FILES", "alpha__list_files"),
        (" alpha__read ", "alpha__read"),
        ("beta read file", "beta__read_file"),
    ],
)
def test_q1_an_exact_name_is_first(query: str, first: str) -> None:
    """The definition of that tool is shown, though other tools have more of the words."""
    result = Search(*NAMED, beta=NAMED).ask(query)
    assert result["structuredContent"]["tools"][0]["name"] == first


def test_q2_an_empty_query_shows_all_by_name() -> None:
    search = Search(*NAMED, beta=[tool("a")])
    everything = ["alpha__list_files", "alpha__read", "alpha__read_file", "beta__a"]
    for query in ("", "  ", "*"):
        assert search.find(query) == everything
    assert search.find("", server="beta") == ["beta__a"]


LANGUAGES: Final = {
    "wetter": ("Liefert die Wettervorhersage f\u00fcr einen Ort.", "WETTERVORHERSAGE f\u00fcr Ort"),
    "pogoda": ("Прогноз погоды для города.", "погоды"),
    "tianqi": ("\u67e5\u8be2\u6307\u5b9a\u57ce\u5e02\u7684\u5929\u6c14\u9884\u62a5\u3002", "\u5929\u6c14"),
    "clima": ("Obt\u00e9n el pron\u00f3stico del tiempo.", "pronostico"),
    "nalssi": ("\ub0a0\uc528 \uc608\ubcf4\ub97c \uc870\ud68c\ud569\ub2c8\ub2e4", "\ub0a0\uc528"),
    "taqs": ("\u062a\u0648\u0642\u0639\u0627\u062a \u0627\u0644\u0637\u0642\u0633", "\u0627\u0644\u0637\u0642\u0633"),
}
"""Tools of many languages: what describes each, and what finds it alone."""


def test_q3_tools_of_other_languages_are_found_by_their_own_words() -> None:
    search = Search(*(tool(name, about) for name, (about, _) in LANGUAGES.items()))
    for name, (_, query) in LANGUAGES.items():
        assert search.find(query) == [f"alpha__{name}"]


def test_q4_of_a_long_query_the_beginning_counts() -> None:
    """A request in full sentences is read to its end."""
    search = Search(tool("send_mail", "Sends mail."), tool("weather", "Says the weather."))
    filling = "please " * (10_240 // 7)
    assert search.find("mail " + filling) == ["alpha__send_mail"]
    assert search.find("x" * 10_240) == []
    result = search.ask(filling + "mail")
    assert names_of(result) == [] and len(says(result)) < 1_000


SECRET: Final = tool("secret", "Tells a secret.")
OPEN_TOOL: Final = tool("open", "Tells what is no secret.")


@each_row(
    "rules",
    [
        {"tools": NameFilter(exclude=("sec*",))},
        {"access": AccessRules(tools=(("secret", AccessRule(groups=("staff",))),))},
        {"pins": pins(OPEN_TOOL, SECRET | {"description": "Tells."})},
        {"pins": pins(OPEN_TOOL, hides_new=True)},
    ],
)
def test_q5_what_is_hidden_denied_or_blocked_is_never_found(rules: dict[str, Any]) -> None:
    """Nor is it counted, or named in another answer."""
    play = Dialogue(
        ServerPlan(id="alpha", kind=Kind.PIPE, **rules),
        profiles=(Profile("all", (ProfileServer("alpha"),), has_search=True),),
    )
    alice = greeted(play, "alice", down="pipe")
    for query in ("secret", "alpha__secret", "", "alpha", "tells", "secre", "nothing like it"):
        result = asked(play, alice, {"alpha": [OPEN_TOOL, SECRET]}, query=query)
        assert names_of(result) == ([] if query == "nothing like it" else ["alpha__open"])
        assert "alpha__secret" not in says(result).replace(repr(query), "")
        assert "next_offset" not in result["structuredContent"]


def test_q6_the_index_follows_a_list_and_keeps_what_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{first}{second}" * 3 for first in "bcdfg" for second in "hjklm"]
    many = [tool(word, "Does it.") for word in words]
    search = Search(*many, beta=NAMED)
    assert search.find(words[7]) == [f"alpha__{words[7]}"]
    added: list[bytes] = []
    add = index.Index.add
    monkeypatch.setattr(index.Index, "add", lambda self, server, entry: added.append(entry) or add(self, server, entry))
    search.tools["alpha"] = [*many[:7], *many[8:], tool("fresh", "Is new.")]
    alpha = search.play.server
    alpha.notifies("tools/list_changed")
    search.play.waits(0.3)
    serve(search.play, search.tools)
    assert f"alpha__{words[7]}" not in search.find(words[7])
    assert search.find("new") == ["alpha__fresh"]
    assert search.find(words[8])[0] == f"alpha__{words[8]}"
    assert len(added) == 1


def test_q7_pages_have_each_hit_once_and_nothing_says_how_to_ask_again() -> None:
    search = Search(*(tool(f"send_{number}", "Sends mail.") for number in range(30)), beta=NAMED)
    for query in ("send mail", ""):
        seen: list[str] = []
        offset = 0
        while offset is not None:
            result = search.ask(query, limit=7, offset=offset)
            seen += names_of(result)
            offset = result["structuredContent"].get("next_offset")
        assert len(seen) == len(set(seen)) == (30 if query else 33)
    result = search.ask("xylophone")
    assert result["structuredContent"] == {"tools": [], "more": [], "servers": {"alpha": "", "beta": ""}}
    assert "Ask again with other words" in says(result) and "- alpha\n- beta" in says(result)
    assert "isError" not in result
    assert search.ask("", server="gamma")["isError"]
