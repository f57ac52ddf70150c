"""Tests of the instructions of a profile."""

from __future__ import annotations

import json

from isthmus.core.profiles.aliases import Aliases
from isthmus.core.profiles.instructions import ALL_MAX_CHARS, PRINCIPALS_MAX, SERVER_MAX_CHARS, Instructions

SERVERS = tuple(f"s{n}" for n in range(9))


def known(size_chars: int = 3, principal: str = "") -> Instructions:
    found = Instructions(Aliases(dict.fromkeys(SERVERS)))
    for server in SERVERS:
        found.learn(principal, server, json.dumps({"instructions": server[1] * size_chars}).encode())
    return found


def test_each_server_has_a_section_that_is_cut() -> None:
    text = known(SERVER_MAX_CHARS + 1).text("", SERVERS, lambda server: server == "s2")
    assert text == "## s2\n\n" + "2" * (SERVER_MAX_CHARS - 1) + "…"


def test_the_last_servers_are_left_out_where_there_is_no_room() -> None:
    text = known(SERVER_MAX_CHARS).text("", SERVERS, lambda server: True)
    assert text.count("## ") == 3 and len(text) <= ALL_MAX_CHARS


def test_instructions_are_of_one_principal_and_the_first_are_dropped() -> None:
    found = known(principal="p0")
    assert found.text("", SERVERS, lambda server: True) == ""
    for n in range(1, PRINCIPALS_MAX + 1):
        found.learn(f"p{n}", "s1", b'{"instructions":"x"}')
    assert found.text("p0", SERVERS, lambda server: True) == ""
    assert found.text("p1", SERVERS, lambda server: True) == "## s1\n\nx"


def test_what_is_no_text_is_no_instruction() -> None:
    found = known()
    for introduction in (b'{"instructions":null}', b'{"instructions":"a","instructions":"b"}', b'{"instructions":" "}'):
        found.learn("", "s1", introduction)
        assert "## s1" not in found.text("", SERVERS, lambda server: True)
