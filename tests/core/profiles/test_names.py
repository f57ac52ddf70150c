"""Tests of names of tools and prompts. The corner cases of names are tests of their own."""

from __future__ import annotations

import itertools
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.profiles.names import (
    CATALOGUE_MAX,
    GUESS_MAX_CHARS,
    LONGEST_MIN,
    Kind,
    Names,
    Route,
    Shortened,
    Unknown,
)
from profile_worlds import NAMES, OWN, World, plain_texts, raw_names, world, worlds

DIGEST = r"-[0-9a-f]{6}"
kinds = st.sampled_from(get_args(Kind))
TWO = world({"a": None, "a_b": None})


def found(names: Names, kind: Kind, exposed: str, raws: list[str]) -> Route | None:
    """Returns what a name stands for, looked up among the raw names of its server where it has a digest."""
    one = names.route(kind, exposed)
    if isinstance(one, Shortened):
        raw = names.catalogue(one.server, kind, raws).get(one.exposed)
        return None if raw is None else Route(one.server, raw)
    return one if isinstance(one, Route) else None


# --- Properties -----------------------------------------------------------------------------------------------------


@given(worlds(), kinds, st.lists(raw_names, min_size=1, max_size=6), st.data())
def test_a_name_that_was_given_out_is_understood(
    profile: World, kind: Kind, raws: list[str], data: st.DataObject
) -> None:
    server = data.draw(st.sampled_from(list(profile.chosen)))
    for raw in raws:
        assert found(profile.names, kind, profile.names.expose(server, kind, raw), raws) == Route(server, raw)


@given(worlds(), kinds, st.sets(raw_names, max_size=8))
def test_no_two_tools_or_prompts_have_one_name(profile: World, kind: Kind, raws: set[str]) -> None:
    exposed = [profile.names.expose(server, kind, raw) for server in profile.chosen for raw in raws]
    assert len(set(exposed)) == len(exposed)
    assert kind != "tools" or not set(exposed) & set(OWN)


@given(worlds(), kinds, raw_names, st.integers(LONGEST_MIN, 128))
def test_a_name_is_what_model_apis_take(profile: World, kind: Kind, raw: str, longest: int) -> None:
    names = Names(profile.aliases, {}, own=OWN, longest=longest)
    for server in profile.chosen:
        assert re.fullmatch(rf"[A-Za-z0-9_-]{{1,{longest}}}", names.expose(server, kind, raw))
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,50}", profile.names.expose(server, kind, raw))


@given(worlds(), kinds, raw_names, st.data())
def test_a_name_stays_when_another_server_comes_or_goes(
    profile: World, kind: Kind, raw: str, data: st.DataObject
) -> None:
    """The one exception: a bare name that begins as those of the other server do cannot be shown beside them."""
    gone = data.draw(st.sampled_from(list(profile.chosen)))
    less = profile.without(gone)
    for server in less.chosen:
        if profile.aliases.of(server) or raw.partition("__")[0] != profile.aliases.of(gone):
            assert less.names.expose(server, kind, raw) == profile.names.expose(server, kind, raw)


@given(worlds(), kinds, raw_names | st.builds("{}__{}".format, st.sampled_from(NAMES), raw_names))
def test_a_name_that_was_not_given_out_is_not_understood(profile: World, kind: Kind, sent: str) -> None:
    """A tool has no second name: what is understood is exactly what `expose` gives."""
    one = profile.names.route(kind, sent)
    if isinstance(one, Route):
        assert profile.names.expose(one.server, kind, one.raw) == sent
    elif isinstance(one, Shortened):
        assert one.exposed == sent
        assert re.fullmatch(rf".*{DIGEST}", sent)
    else:
        assert all(profile.names.route(kind, each.exposed) != one for each in one.candidates)


@given(plain_texts.filter(bool), st.integers(0, 3))
def test_an_ordinary_name_is_behind_its_alias(raw: str, at: int) -> None:
    if not re.search(DIGEST + "$", raw):
        assert TWO.names.expose("a_b", "tools", raw) == f"a-b__{raw}"


# --- Corner cases ---------------------------------------------------------------------------------------------------


def test_a1_the_separator_is_in_no_alias() -> None:
    """The tools `b_c` of `a` and `c` of `a_b` would both be `a_b_c` behind one underscore."""
    assert TWO.names.expose("a", "tools", "b_c") == "a__b_c"
    assert TWO.names.expose("a_b", "tools", "c") == "a-b__c"
    assert TWO.names.route("tools", "a__b_c") == Route("a", "b_c")
    assert TWO.names.route("tools", "a-b__c") == Route("a_b", "c")


@pytest.mark.parametrize("raw", ["x__y", "__y", "_", "__", "b__c"])
def test_a2_a_name_may_have_the_separator(raw: str) -> None:
    assert TWO.names.expose("a", "tools", raw) == f"a__{raw}"
    assert TWO.names.route("tools", f"a__{raw}") == Route("a", raw)


@pytest.mark.parametrize("size", [47, 48, 64, 65, 128, 300, 100_000])
def test_a3_a_long_name_keeps_its_head_and_tail(size: int) -> None:
    raw = "read_" + "x" * (size - 10) + "_file"
    exposed = TWO.names.expose("a", "tools", raw)
    assert (exposed == f"a__{raw}") == (size <= 47)
    assert len(exposed) <= 50
    assert exposed.startswith("a__read_x")
    if size > 47:
        assert re.fullmatch(rf".*_file{DIGEST}", exposed)
        assert len(exposed) == 50


@pytest.mark.parametrize(("size", "is_whole"), [(40, True), (41, False)])
def test_a3_a_name_is_cut_only_if_there_is_no_room_for_it(size: int, is_whole: bool) -> None:
    exposed = TWO.names.expose("a", "tools", "x " + "y" * (size - 2))
    assert len(exposed) == 50
    assert (re.fullmatch(f"a__x-y{{38}}{DIGEST}", exposed) is not None) == is_whole


def test_a3_names_that_begin_alike_stay_apart() -> None:
    raws = ["h" * 60 + tail for tail in ("one", "two", "x" * 90 + "one")]
    exposed = [TWO.names.expose("a", "tools", raw) for raw in raws]
    assert len(set(exposed)) == 3
    assert [found(TWO.names, "tools", one, raws) for one in exposed] == [Route("a", raw) for raw in raws]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("read file", "read-file"),
        ("read.file", "read-file"),
        ("read/file", "read-file"),
        ("l\u00e4s", "l-s"),
        ("\0", "-"),
        ("\U0001f600", "-"),
        ("", ""),
        ("a b__c", "a-b-c"),
    ],
)
def test_a4_other_characters_become_hyphens(raw: str, shown: str) -> None:
    exposed = TWO.names.expose("a", "tools", raw)
    assert re.fullmatch(f"a__{shown}{DIGEST}", exposed)
    assert found(TWO.names, "tools", exposed, [raw]) == Route("a", raw)


def test_a4_names_that_are_equal_after_cleaning_stay_apart() -> None:
    raws = ["read file", "read.file", "read/file", "read-file"]
    assert len({TWO.names.expose("a", "tools", raw) for raw in raws}) == 4
    assert len({TWO.names.expose(server, "tools", raw) for raw in raws for server in ("a", "a_b")}) == 8


@pytest.mark.parametrize("raw", ["x-abcdef", "a-123456", "-e3b0c4"])
def test_a4_a_name_that_looks_like_one_with_a_digest_gets_one(raw: str) -> None:
    exposed = TWO.names.expose("a", "tools", raw)
    assert re.fullmatch(f"a__{raw}{DIGEST}", exposed)
    assert TWO.names.route("tools", f"a__{raw}") == Shortened("a", f"a__{raw}")
    assert found(TWO.names, "tools", f"a__{raw}", [raw]) is None


def test_a5_case_alone_makes_another_name() -> None:
    for raw in ("read", "Read", "READ"):
        assert TWO.names.route("tools", TWO.names.expose("a", "tools", raw)) == Route("a", raw)


def test_a6_names_of_the_profile_itself_are_given_to_no_server() -> None:
    names = world({"files": "", "a": None}).names
    assert names.expose("a", "tools", "search_tools") == "a__search_tools"
    assert re.fullmatch(f"search_tools{DIGEST}", names.expose("files", "tools", "search_tools"))
    assert re.fullmatch(f"a__b_get_upload_url{DIGEST}", names.expose("a", "tools", "b_get_upload_url"))
    assert names.expose("files", "prompts", "search_tools") == "search_tools"
    assert names.route("tools", "search_tools") == Unknown(
        (Shortened("files", names.expose("files", "tools", "search_tools")),)
    )


def test_a7_of_two_tools_with_one_name_the_first_counts() -> None:
    """Two raw names can have one digest, too. A digest is short, so they can be found on purpose."""
    names = TWO.names
    assert names.catalogue("a", "tools", ["x", "x"]) == {"a__x": "x"}
    seen: dict[str, str] = {}
    for number in itertools.count():
        raw = " " * number
        other = seen.setdefault(names.expose("a", "tools", raw), raw)
        if other != raw:
            break
    assert list(names.catalogue("a", "tools", [other, raw]).values()) == [other]
    assert list(names.catalogue("a", "tools", [raw, other]).values()) == [raw]
    assert found(names, "tools", names.expose("a_b", "tools", raw), [raw, other]) == Route("a_b", raw)


def test_a8_a_raw_name_lists_candidates() -> None:
    assert TWO.names.route("tools", "search") == Unknown((Shortened("a", "a__search"), Shortened("a_b", "a-b__search")))
    long = TWO.names.route("tools", "n" * 65)
    assert isinstance(long, Unknown)
    assert [len(each.exposed) for each in long.candidates] == [50, 50]
    assert TWO.names.route("tools", "other__x") == Unknown(
        (Shortened("a", "a__other__x"), Shortened("a_b", "a-b__other__x"))
    )


def test_a8_a_name_of_one_server_has_one_candidate() -> None:
    dotted = TWO.names.route("tools", "a__read.file")
    assert dotted == Unknown((Shortened("a", TWO.names.expose("a", "tools", "read.file")),))


def test_a8_candidates_are_found_for_names_of_some_length_only() -> None:
    assert TWO.names.route("tools", "n" * GUESS_MAX_CHARS) != Unknown(())
    assert TWO.names.route("tools", "n" * (GUESS_MAX_CHARS + 1)) == Unknown(())


def test_a9_an_aggregate_may_be_a_server_of_another() -> None:
    inner, outer = world({"github": None}).names, world({"inner": None, "github": None}).names
    exposed = outer.expose("inner", "tools", inner.expose("github", "tools", "search"))
    assert exposed == "inner__github__search"
    assert outer.route("tools", exposed) == Route("inner", "github__search")
    assert inner.route("tools", "github__search") == Route("github", "search")


def test_a9_an_aggregate_that_is_shown_bare_keeps_its_names() -> None:
    names = world({"inner": "", "fs": None}).names
    assert names.expose("inner", "tools", "github__search") == "github__search"
    assert names.route("tools", "github__search") == Route("inner", "github__search")
    assert re.fullmatch(f"fs-read{DIGEST}", names.expose("inner", "tools", "fs__read"))
    assert names.route("tools", "fs__read") == Route("fs", "read")


def test_a9_names_of_an_aggregate_that_contains_itself_stay_short() -> None:
    names, chain = world({"loop": None}).names, ["read"]
    for _ in range(20):
        chain.append(names.expose("loop", "tools", chain[-1]))
    assert max(map(len, chain)) <= 50
    assert len(set(chain)) == len(chain)
    for raw, exposed in itertools.pairwise(chain):
        assert found(names, "tools", exposed, chain) == Route("loop", raw)


# --- Renamings ------------------------------------------------------------------------------------------------------


def test_a_renamed_tool_has_its_new_name_alone() -> None:
    names = world({"a": None, "b": ""}, {("a", "tools"): {"old name": "new"}, ("b", "prompts"): {"x": "y"}}).names
    assert names.expose("a", "tools", "old name") == "a__new"
    assert names.route("tools", "a__new") == Route("a", "old name")
    assert names.expose("a", "prompts", "new") == "a__new"
    assert names.route("prompts", "a__new") == Route("a", "new")
    assert names.expose("b", "prompts", "x") == "y"
    assert names.route("prompts", "x") == Unknown((Shortened("b", "y"),))


def test_a_tool_whose_name_another_one_got_has_a_digest() -> None:
    names = world({"a": None}, {("a", "tools"): {"x": "y"}}).names
    assert names.route("tools", "a__y") == Route("a", "x")
    assert re.fullmatch(f"a__y{DIGEST}", names.expose("a", "tools", "y"))


def test_a_new_name_may_take_all_the_room() -> None:
    names = Names(TWO.aliases, {("a", "tools"): {"x": "n" * 47}})
    assert names.expose("a", "tools", "x") == "a__" + "n" * 47
    assert len(names.expose("a", "tools", "n" * 48)) == 50


def test_two_tools_may_change_names() -> None:
    names = world({"a": None}, {("a", "tools"): {"x": "y", "y": "x"}}).names
    assert names.route("tools", "a__y") == Route("a", "x")
    assert names.route("tools", "a__x") == Route("a", "y")


@pytest.mark.parametrize(
    ("renamed", "said"),
    [
        ({"x": "a b"}, r"expected 1 to 47 letters, digits, underscores and hyphens"),
        ({"x": ""}, r"expected 1 to 47 letters"),
        ({"x": "n" * 48}, r"expected 1 to 47 letters"),
        ({"x": "n-abcdef"}, r"expected another end"),
        ({"x": "y", "z": "y"}, r"which 'x' has already"),
        ({"x": "b_get_upload_url"}, r"which is a name of the profile"),
    ],
)
def test_a_renaming_that_cannot_be_done_is_refused(renamed: dict[str, str], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=rf"^tools.rename of server 'a': '[xz]': got .*{said}"):
        world({"a": None}, {("a", "tools"): renamed})


def test_a_bare_name_cannot_be_that_of_another_server() -> None:
    with pytest.raises(LocalProtocolError, match=r"a name of the profile or of another server"):
        world({"a": None, "b": ""}, {("b", "tools"): {"x": "a__x"}})


def test_renamings_of_servers_of_other_profiles_do_nothing() -> None:
    assert world({"a": None}, {("z", "tools"): {"x": "y"}}).names.expose("a", "tools", "x") == "a__x"


def test_a_catalogue_is_bounded() -> None:
    raws = (str(number) for number in range(CATALOGUE_MAX + 10))
    assert len(TWO.names.catalogue("a", "tools", raws)) == CATALOGUE_MAX
