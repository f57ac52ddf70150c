"""The words of a plan are those of a configuration, and its defaults and derived facts are enumerated."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base import plan
from isthmus.core.base.plan import (
    Affinity,
    ArtifactProducer,
    AutoFiles,
    Deliver,
    Eviction,
    Kind,
    Links,
    LocatorMode,
    Offer,
    OutputLocator,
    ServerPlan,
    Sharing,
    TaskRules,
    UploadConsumer,
)

EATS = UploadConsumer(tools=("eat",), file_path_argument="file")
MAKES = ArtifactProducer(tools=("make",))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind, ["pipe", "socket", "http"]),
        (Sharing, ["none", "concurrent", "serial"]),
        (Affinity, ["shared", "request"]),
        (Offer, ["auto", "always", "own", "never"]),
        (Eviction, ["none", "lru_uploads_then_artifacts", "lru_artifacts_then_uploads"]),
        (Deliver, ["path", "file_uri", "url", "data_uri", "base64", "text"]),
        (Links, ["both", "resource_link", "text"]),
        (
            LocatorMode,
            ["none", "regex", "structured", "embedded", "resource_link", "argument", "changed"],
        ),
    ],
)
def test_the_words_of_a_configuration(kind: Any, words: list[str]) -> None:
    """A member is found by its word, which stands in users' files."""
    assert [member.value for member in kind] == words
    assert [kind(word) for word in words] == list(kind)


def test_the_defaults_of_a_server() -> None:
    """A server has a session for each client, shows everything, and leaves files and others' tasks alone."""
    server = ServerPlan(id="s", kind=Kind.PIPE)
    assert server.sharing is Sharing.NONE
    assert (server.session_retries, server.spares, server.stage) == (1, 0, "in")
    assert not server.may_fall_back and not server.passes_authorization and not server.forwards_roots
    assert (server.start_timeout_s, server.reply_timeout_s, server.idle_stop_s) == (None, None, None)
    assert not server.has_files and not server.takes_uploads and not server.owns_roots
    assert server.tasks == TaskRules(offer=Offer.NEVER) and not server.tasks.strict
    assert all(each.admits("x") for each in (server.tools, server.prompts, server.resources))
    assert (server.cwd, server.shared, server.era) == ("", (), None)


def test_the_defaults_of_a_tool_with_files() -> None:
    assert (EATS.deliver, EATS.accept_other, EATS.uri_scheme) == (Deliver.PATH, False, "upload://")
    assert MAKES.persist and MAKES.expose_as_resource
    assert not (MAKES.allow_raw_output or MAKES.required or MAKES.move or MAKES.rewrite_text)
    assert MAKES.inline_text_bytes == 0
    assert AutoFiles() == AutoFiles(rewrite_text=True, inline_text_bytes=32 * 1024, expose_as_resource=True)


def test_the_defaults_of_a_proxy() -> None:
    """A proxy takes uploads, gives downloads, lists artifacts and requires no hash."""
    found = plan.Plan(servers=())
    assert found.uploads_enabled and found.downloads_enabled and found.artifacts_enabled and found.expose_as_resources
    assert not found.require_sha256 and not found.mirrors_polling and not found.stores_events
    assert (found.eviction, found.affinity) == (Eviction.UPLOADS_FIRST, Affinity.SHARED)
    assert found.state_keys == () and found.link_keys == () and found.link_key == b""
    assert (found.public_base_url, found.fallback_base_url, found.tmp_prefix) == ("", "", "")


@each_row("sharing", list(Sharing))
@each_row("kind", list(Kind))
@each_row("files", [{}, {"consumers": (EATS,)}, {"producers": (MAKES,)}, {"auto_files": AutoFiles()}])
def test_which_servers_can_be_shared(sharing: Sharing, kind: Kind, files: dict[str, Any]) -> None:
    """A server over Streamable HTTP is not shared, nor is one with files, whose folders belong to a session."""
    if sharing is not Sharing.NONE and (kind is Kind.HTTP or files):
        text = "server s cannot be shared: it speaks Streamable HTTP, or has adapters"
        with pytest.raises(ValueError, match=text):
            ServerPlan(id="s", kind=kind, sharing=sharing, **files)
    else:
        assert ServerPlan(id="s", kind=kind, sharing=sharing, **files).sharing is sharing


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize(("eats", "makes", "auto"), [*itertools.product([True, False], repeat=3)])
def test_the_file_handling_of_a_server(eats: bool, makes: bool, auto: bool, forwards: bool) -> None:
    server = ServerPlan(
        id="s",
        kind=Kind.PIPE,
        consumers=(EATS,) if eats else (),
        producers=(MAKES,) if makes else (),
        auto_files=AutoFiles() if auto else None,
        forwards_roots=forwards,
    )
    assert server.has_files is (eats or makes or auto)
    assert server.takes_uploads is (eats or auto)
    assert server.owns_roots is (server.has_files and not forwards)


@pytest.mark.parametrize(
    ("schemes", "expected"),
    [
        ((), "upload://"),
        (("a://",), "a://"),
        (("a://", "a://"), "a://"),
        (("a://", "b://"), "upload://"),
        (("upload://", "b://"), "upload://"),
    ],
)
def test_the_scheme_of_handles_is_the_one_that_all_tools_use(schemes: tuple[str, ...], expected: str) -> None:
    consumers = tuple(UploadConsumer(tools=("t",), file_path_argument="f", uri_scheme=scheme) for scheme in schemes)
    assert ServerPlan(id="s", kind=Kind.PIPE, consumers=consumers).upload_scheme == expected


def test_a_value_may_be_one_or_several() -> None:
    assert EATS.arguments == ("file",)
    assert UploadConsumer(tools=("eat",), file_path_argument=("a", "b[*]")).arguments == ("a", "b[*]")
    assert OutputLocator().modes == (LocatorMode.NONE,)
    assert OutputLocator(mode=LocatorMode.REGEX).modes == (LocatorMode.REGEX,)
    both = (LocatorMode.REGEX, LocatorMode.CHANGED)
    assert OutputLocator(mode=both).modes == both


@pytest.mark.parametrize(
    ("tool", "offer"),
    [("a", Offer.ALWAYS), ("ab", Offer.NEVER), ("b", Offer.AUTO), ("A", Offer.AUTO), ("", Offer.AUTO)],
)
def test_the_first_rule_that_matches_holds(tool: str, offer: Offer) -> None:
    rules = TaskRules(offer=Offer.AUTO, tools=(("a", Offer.ALWAYS), ("a*", Offer.NEVER), ("ab", Offer.OWN)))
    assert rules.offer_for(tool) is offer


@pytest.mark.parametrize("offer", list(Offer))
@pytest.mark.parametrize("of_tools", [(), (Offer.NEVER,), (Offer.NEVER, Offer.OWN), (Offer.ALWAYS,)])
def test_tasks_are_offered_unless_no_tool_has_them(offer: Offer, of_tools: tuple[Offer, ...]) -> None:
    rules = TaskRules(offer=offer, tools=tuple((str(number), each) for number, each in enumerate(of_tools)))
    assert rules.are_offered is any(each is not Offer.NEVER for each in (offer, *of_tools))
