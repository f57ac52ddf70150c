"""Tests of URIs of resources. The corner cases of URIs are tests of their own; those of whole messages are in
test_rewriting."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.profiles.names import Route
from isthmus.core.profiles.uris import Uris
from isthmus.core.state.listen_filter import ListenFilter
from profile_worlds import World, raw_uris, world, worlds

TWO = world({"a": None, "b": None})
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


# --- Properties -----------------------------------------------------------------------------------------------------


@given(worlds(), raw_uris)
def test_a_uri_that_was_given_out_is_understood(profile: World, raw: str) -> None:
    for server in profile.chosen:
        assert profile.uris.route(profile.uris.expose(server, raw)) == Route(server, raw)
        assert profile.uris.route(profile.uris.expose_template(server, raw)) == Route(server, raw)


@given(worlds(), st.sets(raw_uris, max_size=8))
def test_no_two_resources_have_one_uri(profile: World, raws: set[str]) -> None:
    exposed = [profile.uris.expose(server, raw) for server in profile.chosen for raw in raws]
    assert len(set(exposed)) == len(exposed)


@given(worlds(), raw_uris, st.data())
def test_a_uri_stays_when_another_server_comes_or_goes(profile: World, raw: str, data: st.DataObject) -> None:
    """The one exception: a bare URI that begins as those of the other server do cannot be shown beside them."""
    gone = data.draw(st.sampled_from(list(profile.chosen)))
    less = profile.without(gone)
    for server in less.chosen:
        begins = raw.removeprefix("ui://").startswith(f"{profile.aliases.of(gone)}+")
        if profile.aliases.of(server) or not begins:
            assert less.uris.expose(server, raw) == profile.uris.expose(server, raw)


@given(raw_uris)
def test_a_uri_behind_an_alias_is_a_uri(raw: str) -> None:
    """The alias makes a scheme of its own, unless the URI is of a user interface."""
    exposed = TWO.uris.expose("a", raw)
    assert exposed.startswith(("a+", "ui://a+"))
    assert SCHEME.match(exposed)


@given(worlds(), raw_uris)
def test_a_uri_of_no_alias_is_not_understood(profile: World, uri: str) -> None:
    found = profile.uris.route(uri)
    aliases = {profile.aliases.of(server) for server in profile.chosen}
    has_alias = any(uri.removeprefix("ui://").startswith(f"{alias}+") for alias in aliases if alias)
    assert (found is not None) == (has_alias or "" in aliases)


# --- Corner cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "exposed"),
    [
        ("file:///x", "a+file:///x"),
        ("memo:x", "a+memo:x"),
        ("urn:uuid:6e8bc430", "a+urn:uuid:6e8bc430"),
        ("GIT+https://h/x", "a+GIT+https://h/x"),
        ("c:\\x y", "a+c:\\x y"),
        ("a+file:///x", "a+a+file:///x"),
        ("readme.md", "a+rel:readme.md"),
        ("docs/a b", "a+rel:docs/a%20b"),
        ("/etc/../x", "a+rel:%2Fetc/../x"),
        ("//host/x", "a+rel:%2F/host/x"),
        ("r\u00e9sum\u00e9 %41", "a+rel:r%C3%A9sum%C3%A9%20%2541"),
        ("", "a+rel:"),
        (":", "a+rel:%3A"),
        ("rel:x", "a+rel:rel%3Ax"),
        ("\0", "a+rel:%00"),
    ],
)
def test_u1_a_uri_of_any_form_has_one(raw: str, exposed: str) -> None:
    assert TWO.uris.expose("a", raw) == exposed
    assert TWO.uris.route(exposed) == Route("a", raw)


def test_u2_one_uri_of_several_servers_stays_apart() -> None:
    profile = world({f"server-{number}": None for number in range(5)})
    exposed = {profile.uris.expose(server, "memo:insights") for server in profile.chosen}
    assert len(exposed) == 5
    assert {profile.uris.route(uri) for uri in exposed} == {Route(one, "memo:insights") for one in profile.chosen}


@pytest.mark.parametrize(
    ("template", "exposed", "filled", "raw"),
    [
        ("file:///{path}", "a+file:///{path}", "a+file:///x%20y", "file:///x%20y"),
        ("{+url}", "a+{+url}", "a+https://h/x%20y?q", "https://h/x%20y?q"),
        ("{scheme}://x", "a+{scheme}://x", "a+git+ssh://x", "git+ssh://x"),
        ("notes/{id}", "a+notes/{id}", "a+notes/x%20y", "notes/x%20y"),
        ("ui://{view}", "ui://a+{view}", "ui://a+main", "ui://main"),
    ],
)
def test_u3_a_filled_template_is_what_the_server_would_get(template: str, exposed: str, filled: str, raw: str) -> None:
    assert TWO.uris.expose_template("a", template) == exposed
    assert TWO.uris.route(exposed) == Route("a", template)
    assert TWO.uris.route(filled) == Route("a", raw)


def test_u3_templates_that_overlap_stay_apart() -> None:
    assert TWO.uris.expose_template("a", "{+url}") != TWO.uris.expose_template("b", "{+url}")
    assert TWO.uris.route("a+file:///x") == Route("a", "file:///x")
    assert TWO.uris.route("b+file:///x") == Route("b", "file:///x")


def test_u4_the_uri_of_a_user_interface_stays_one() -> None:
    assert TWO.uris.expose("a", "ui://view/main") == "ui://a+view/main"
    assert TWO.uris.expose("a", "ui://a+view") == "ui://a+a+view"
    assert TWO.uris.route("ui://a+a+view") == Route("a", "ui://a+view")
    assert TWO.uris.expose("a", "ui:view") == "a+ui:view"
    assert TWO.uris.route("ui://view/a+b") is None


@given(st.sampled_from(["docs", "/srv", "//h", "file:///x", "memo:x", "ui://v"]), st.text(max_size=10))
def test_u7_what_lies_below_a_resource_lies_below_it_for_clients(above: str, name: str) -> None:
    below = TWO.uris.expose("a", f"{above}/{name}")
    asked = ListenFilter(uris=frozenset({TWO.uris.expose("a", above)}))
    assert asked.covers("notifications/resources/updated", below)


@pytest.mark.parametrize("uri", ["artifact://sessions/1/2/x.txt", "upload://sessions/1/2", "fs-upload://x"])
def test_u8_uris_of_the_profiles_own_files_pass(uri: str) -> None:
    uris = Uris(TWO.aliases, own=("artifact://", "upload://", "fs-upload://"))
    for server in ("a", "b"):
        assert uris.expose(server, uri) == uri
        assert uris.expose_template(server, uri) == uri
    assert uris.is_own(uri)
    assert uris.route(uri) is None
    assert TWO.uris.is_own(uri) == (not uri.startswith("fs"))


def test_u8_a_uri_that_would_be_read_as_one_of_the_profiles_own_takes_another_form() -> None:
    uris = Uris(TWO.aliases, own=("a+memo://",))
    assert uris.expose("a", "memo://x") == "a+rel:memo%3A//x"
    assert uris.route("a+rel:memo%3A//x") == Route("a", "memo://x")


@pytest.mark.parametrize("uri", ["file:///x", "git+https://x", "c+file:///x", "ui://c+x", "A+file:///x", "+x", "a"])
def test_u9_a_uri_without_an_alias_of_the_profile_is_of_no_server(uri: str) -> None:
    assert TWO.uris.route(uri) is None


def test_a_server_that_is_shown_bare_keeps_its_uris() -> None:
    uris = world({"files": "", "b": None}).uris
    for raw in ("file:///x", "readme.md", "", "c+file:///x", "ui://x", "{+url}", "a b"):
        assert uris.expose("files", raw) == raw
        assert uris.expose_template("files", raw) == raw
    assert uris.route("anything") == Route("files", "anything")


@pytest.mark.parametrize("raw", ["b+file:///x", "ui://b+x", "rel:x", "b+"])
def test_a_bare_uri_that_would_be_read_as_another_takes_the_percent_form(raw: str) -> None:
    uris = world({"files": "", "b": None}).uris
    assert uris.expose("files", raw) == f"rel:{quote(raw)}"
    assert uris.route(f"rel:{quote(raw)}") == Route("files", raw)


def test_an_aggregate_may_be_a_server_of_another() -> None:
    inner, outer = world({"github": None}).uris, world({"inner": None, "github": None}).uris
    for raw in ("file:///x", "readme.md", "ui://x", "rel:x", ""):
        once = inner.expose("github", raw)
        assert outer.route(outer.expose("inner", once)) == Route("inner", once)
        assert inner.route(once) == Route("github", raw)
    assert outer.expose("inner", inner.expose("github", "file:///x")) == "inner+github+file:///x"
