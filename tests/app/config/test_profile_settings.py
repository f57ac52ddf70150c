"""Tests of the profiles of a configuration: the one that nobody writes, and faults of those that are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.plan import to_plan
from isthmus.app.config.profiles import default_of, left_out, profiles_of, servers_of
from isthmus.app.config.settings import Settings
from isthmus.app.runtime.listeners import surface_of
from isthmus.core.profiles.aliases import Aliases

UNFIT: dict[str, dict[str, Any]] = {
    "inspect: false": {"inspect": False},
    "pass_headers": {"upstream": {"url": "http://h", "pass_headers": ["Cookie"]}},
    "required_headers": {"required_headers": ["X-A"], "upstream": {"url": "http://h", "pass_headers": ["X-B"]}},
}
SENT_A_COOKIE: dict[str, Any] = {"id": "d", "upstream": {"url": "http://h", "pass_headers": {"cookie": "X-C"}}}


def read(*servers: str | dict[str, Any], profiles: object = ()) -> Settings:
    given = [{"upstream": {"url": "http://h"}} | ({"id": one} if isinstance(one, str) else one) for one in servers]
    return loads(msgspec.json.encode({"servers": given, "profiles": profiles}).decode(), "json", "/", {})


def shown(settings: Settings) -> dict[str, list[str]]:
    return {profile.id: [server.id for server in servers_of(profile)] for profile in profiles_of(settings)}


def test_two_servers_or_more_have_a_profile_that_nobody_writes() -> None:
    dev = [{"id": "dev", "servers": ["a"]}]
    assert shown(read("a")) == {}
    assert shown(read("a", profiles=dev)) == {"dev": ["a"]}
    assert shown(read("a", "b", profiles=dev)) == {"all": ["a", "b"], "dev": ["a"]}
    assert shown(read("a", "b", profiles=[{"id": "all", "servers": ["b"]}])) == {"all": ["b"]}
    assert shown(read("a", "all")) == {}, "the id is taken"


@pytest.mark.parametrize(("written", "count", "default"), [((), 2, "all"), ((), 1, ""), (("all",), 1, "all")])
def test_the_default_profile_is_at_the_short_path(written: tuple[str, ...], count: int, default: str) -> None:
    settings = read(*"ab"[:count], profiles=[{"id": id, "servers": ["a"]} for id in written])
    assert default_of(settings) == default
    assert surface_of(settings).unnamed == (default or "a")


@pytest.mark.parametrize("why", UNFIT)
def test_what_a_profile_cannot_hold_is_left_out_and_refused_where_it_is_written(why: str) -> None:
    unfit = {"id": "c"} | UNFIT[why]
    others = (SENT_A_COOKIE,) if why == "pass_headers" else ()
    settings = read("a", "b", unfit, *others)
    assert shown(settings) == {"all": ["a", "b"]}
    left = [f"without c, which has {why}", *(["without d, which has pass_headers"] if others else [])]
    assert left_out(settings) == left
    assert shown(read("a", unfit, *others)) == {}
    right = rf"profiles\[0\]\.servers\[0\]: got 'c', expected a server without {why} "
    with pytest.raises(ConfigError, match=right.removesuffix(" ")):
        read("a", unfit, *others, profiles=[{"id": "dev", "servers": ["c", *(one["id"] for one in others)]}])


def test_headers_of_clients_go_on_to_the_servers_of_a_profile_that_want_them() -> None:
    own = {"id": "c", "required_headers": ["x-c"], "upstream": {"url": "http://h", "pass_headers": {"X-C": "Cookie"}}}
    traced = {"upstream": {"url": "http://h", "pass_headers": ["X-Trace"]}}
    settings = read("a", own, {"id": "d"} | traced)
    assert shown(settings) == {"all": ["a", "c", "d"]}
    assert surface_of(settings).passes["all"] == (("x-c", "x-c"), ("x-trace", "x-trace"))
    plan = to_plan(settings, b"k" * 16, "/w", "")
    assert [(one.headers, one.required_headers) for one in plan.profiles[0].servers] == [
        ((), ()),
        ((("x-c", "Cookie"),), ("x-c",)),
        ((("x-trace", "X-Trace"),), ()),
    ]
    both = {"id": "d"} | traced, {"id": "e"} | traced
    assert shown(read("a", "b", *both)) == {"all": ["a", "b"]}, "nobody chose that both get it"
    chosen = read(*both, profiles=[{"id": "dev", "servers": ["d", "e"]}])
    assert shown(chosen) == {"dev": ["d", "e"]}


def test_servers_whose_aliases_would_be_the_same_get_others_that_do_not_depend_on_their_order() -> None:
    ids = ("company-internal-notes", "company-internal-wiki", "other")

    def aliases(*ids: str) -> dict[str, str]:
        (profile,) = profiles_of(read(*ids))
        found = Aliases({server.id: server.alias for server in servers_of(profile)})
        return {id: found.of(id) for id in ids}

    found = aliases(*ids)
    assert found == aliases(*ids[::-1])
    assert found["other"] == "other"
    assert len({*found.values()}) == 3
    assert found[ids[0]].startswith("company-i-")
