"""Discovery: the places where the authorization server of an MCP server is found, and what of it is used."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.discovery import discover
from isthmus.core.logins.metadata import covers, issuer_metadata_urls, resource_metadata_urls, resource_of
from isthmus.core.logins.requests import Fetched, FetchFailed, LoginFailed
from login_world import (
    ISSUER,
    OAUTH_AT_PATH,
    OPENID_AT_PATH,
    OPENID_BEHIND,
    RESOURCE_AT_PATH,
    RESOURCE_AT_ROOT,
    URL,
    World,
    json_reply,
    server_metadata,
)

NAMED = BearerChallenge("https://elsewhere.example/metadata?of=v1")
LEGACY = "https://mcp.example"
LEGACY_OAUTH = f"{LEGACY}/.well-known/oauth-authorization-server"


def metadata(**changes: Any) -> Fetched:
    return json_reply({"resource": URL, "authorization_servers": [ISSUER], **changes})


def test_the_metadata_that_the_challenge_names_comes_first() -> None:
    """2025-11-25: clients use the URL of the header "when present"."""
    world = World()
    world.answers = {NAMED.resource_metadata: metadata(scopes_supported=["a", "b"]), **world.answers}
    found = world.run(discover(URL, NAMED))
    assert world.urls == [NAMED.resource_metadata, OAUTH_AT_PATH]
    assert (found.server.issuer, found.resource, found.scopes, found.is_legacy) == (ISSUER, URL, ("a", "b"), False)


def test_without_a_name_the_path_comes_before_the_root() -> None:
    """SEP-985: the header is optional."""
    world = World()
    world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH, OAUTH_AT_PATH]
    world = World()
    world.answers[RESOURCE_AT_ROOT] = world.answers.pop(RESOURCE_AT_PATH)
    world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH, RESOURCE_AT_ROOT, OAUTH_AT_PATH]


@pytest.mark.parametrize(
    "reply", [Fetched(404, b""), Fetched(401, b"{}"), Fetched(200, b"<html>"), Fetched(200, b"[]")]
)
def test_what_is_no_metadata_at_the_path_leads_to_the_root(reply: Fetched) -> None:
    world = World()
    world.answers[RESOURCE_AT_ROOT] = metadata(resource=LEGACY)
    world.answers[RESOURCE_AT_PATH] = reply
    assert world.run(discover(URL, BearerChallenge())).resource == LEGACY


@pytest.mark.parametrize("reply", [Fetched(404, b""), Fetched(200, b"<html>"), Fetched(302, b"")])
def test_named_metadata_that_cannot_be_used_ends_the_login(reply: Fetched) -> None:
    world = World()
    world.answers[NAMED.resource_metadata] = reply
    with pytest.raises(LoginFailed, match="names metadata that cannot be used"):
        world.run(discover(URL, NAMED))
    assert len(world.requests) == 1


@pytest.mark.parametrize(
    "resource",
    ["https://evil.example/v1/mcp", "https://mcp.example/v1/m", "http://mcp.example/v1/mcp", "x", f"{URL}?a"],
)
def test_metadata_of_another_resource_is_not_used(resource: str) -> None:
    """RFC 9728, 3.3; 2025-06-18: tokens for another server would be sent to this one."""
    world = World(resource={"resource": resource})
    with pytest.raises(LoginFailed, match=r"expected https://mcp\.example/v1/mcp"):
        world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH]


@pytest.mark.parametrize(
    ("resource", "url", "expected"),
    [
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/", "https://a.example/mcp", True),
        ("https://A.example:443/mcp/", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example/mcp", "https://a.example/mcp?key=1", True),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("https://a.example/mcp#f", "https://a.example/mcp", False),
    ],
)
def test_a_resource_covers_what_is_below_it(resource: str, url: str, expected: bool) -> None:
    assert covers(resource, url) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://MCP.Example:443/", "https://mcp.example"),
        ("https://mcp.example/mcp?api_key=s", "https://mcp.example/mcp"),
        ("https://mcp.example:8443/mcp/", "https://mcp.example:8443/mcp/"),
    ],
)
def test_the_identifier_of_a_server(url: str, expected: str) -> None:
    """2026-07-28, "Canonical Server URI"; a query may have a key in it."""
    assert resource_of(url) == expected


def test_well_known_urls() -> None:
    assert resource_metadata_urls("https://a.example/?x=1") == [
        "https://a.example/.well-known/oauth-protected-resource"
    ]
    assert issuer_metadata_urls("https://a.example/") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]
    assert issuer_metadata_urls("https://a.example/t/1/") == [
        "https://a.example/.well-known/oauth-authorization-server/t/1",
        "https://a.example/.well-known/openid-configuration/t/1",
        "https://a.example/t/1/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        (OAUTH_AT_PATH, [OAUTH_AT_PATH]),
        (OPENID_AT_PATH, [OAUTH_AT_PATH, OPENID_AT_PATH]),
        (OPENID_BEHIND, [OAUTH_AT_PATH, OPENID_AT_PATH, OPENID_BEHIND]),
    ],
)
def test_the_order_of_authorization_server_metadata(where: str, asked: list[str]) -> None:
    """2025-11-25, "Authorization Server Metadata Discovery"."""
    world = World()
    world.answers[where] = world.answers.pop(OAUTH_AT_PATH)
    world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH, *asked]


@pytest.mark.parametrize(
    "issuer", [ISSUER + "/", "https://AS.example/realms/a", "https://evil.example", "https://as.example"]
)
def test_an_issuer_that_is_written_otherwise_is_another(issuer: str) -> None:
    """Corner case 13 and SEP-2468: no normalising; the message has both texts."""
    world = World(server={"issuer": issuer})
    with pytest.raises(LoginFailed) as failed:
        world.run(discover(URL, BearerChallenge()))
    assert ISSUER in str(failed.value)
    assert issuer in str(failed.value)
    assert str(failed.value).endswith(f"or set issuer: {issuer}") == (issuer == ISSUER + "/"), "the same URL otherwise"
    assert world.urls[-1] == OAUTH_AT_PATH


def test_no_metadata_of_a_named_authorization_server_ends_the_login() -> None:
    """The default endpoints are those of 2025-03-26, where nothing is named."""
    world = World()
    del world.answers[OAUTH_AT_PATH]
    with pytest.raises(LoginFailed, match="has no metadata that can be used"):
        world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH, OAUTH_AT_PATH, OPENID_AT_PATH, OPENID_BEHIND]


@pytest.mark.parametrize(
    "issuer", ["http://as.example", "https://as.example?x", "https://as.example#f", "file:///etc", ""]
)
def test_an_issuer_that_is_none_is_not_asked(issuer: str) -> None:
    world = World(resource={"authorization_servers": [issuer]})
    with pytest.raises(LoginFailed, match="as authorization server"):
        world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH]


@pytest.mark.parametrize(
    "changes",
    [
        {"token_endpoint": None},
        {"token_endpoint": "http://as.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"registration_endpoint": 1},
        {"issuer": None},
    ],
)
def test_metadata_with_an_endpoint_that_must_not_be_asked_is_none(changes: dict[str, Any]) -> None:
    with pytest.raises(LoginFailed, match="unreadable"):
        World(server=changes).run(discover(URL, BearerChallenge()))


def test_metadata_without_authorization_servers_says_what_to_set() -> None:
    with pytest.raises(LoginFailed, match="set issuer"):
        World(resource={"authorization_servers": []}).run(discover(URL, BearerChallenge()))


def test_of_several_authorization_servers_the_known_one_is_taken() -> None:
    """RFC 9728, 7.6: the choice is the client's."""
    world = World(resource={"authorization_servers": ["https://other.example", ISSUER]})
    assert world.run(discover(URL, BearerChallenge(), wanted_issuer=ISSUER)).server.issuer == ISSUER
    world.answers["https://other.example/.well-known/oauth-authorization-server"] = json_reply(
        server_metadata("https://other.example")
    )
    assert world.run(discover(URL, BearerChallenge())).server.issuer == "https://other.example"
    assert world.run(discover(URL, BearerChallenge(), wanted_issuer="https://x")).server.issuer != "https://x"


def test_a_pinned_issuer_skips_the_metadata_of_the_resource() -> None:
    world = World()
    found = world.run(discover(URL, NAMED, issuer=ISSUER))
    assert world.urls == [OAUTH_AT_PATH]
    assert (found.resource, found.scopes) == (URL, None)


@pytest.mark.parametrize(("setting", "sent"), [("auto", LEGACY), ("none", ""), ("api://x", "api://x")])
def test_the_resource_that_is_sent(setting: str, sent: str) -> None:
    """Entra ID refuses the parameter (AADSTS9010010), so it can be left out or named."""
    world = World(resource={"resource": LEGACY})
    assert world.run(discover(URL, BearerChallenge(), resource=setting)).resource == sent


# --- 2025-03-26 -----------------------------------------------------------------------------------------------------


def legacy_world(**changes: Any) -> World:
    world = World()
    del world.answers[RESOURCE_AT_PATH]
    world.answers[LEGACY_OAUTH] = json_reply({**server_metadata(LEGACY), **changes})
    return world


@pytest.mark.parametrize("issuer", [LEGACY, LEGACY + "/", LEGACY + "/oauth"])
def test_a_server_without_metadata_has_that_of_its_origin(issuer: str) -> None:
    world = legacy_world(issuer=issuer)
    found = world.run(discover(URL, BearerChallenge()))
    assert world.urls == [RESOURCE_AT_PATH, RESOURCE_AT_ROOT, LEGACY_OAUTH]
    assert (found.is_legacy, found.server.issuer, found.resource) == (True, issuer, URL)


@pytest.mark.parametrize("issuer", ["https://login.example", "https://mcp.example:8443", "http://mcp.example", "x"])
def test_metadata_of_another_at_the_origin_is_not_used(issuer: str) -> None:
    with pytest.raises(LoginFailed, match="set issuer if you trust that one"):
        legacy_world(issuer=issuer).run(discover(URL, BearerChallenge()))


def test_a_server_without_any_metadata_has_the_default_endpoints() -> None:
    world = World()
    world.answers.clear()
    found = world.run(discover(URL, BearerChallenge()))
    assert found.is_legacy
    assert found.server.authorization_endpoint == "https://mcp.example/authorize"
    assert found.server.token_endpoint == "https://mcp.example/token"
    assert found.server.registration_endpoint == "https://mcp.example/register"


# --- What must not be asked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://mcp.example/m", "ftp://a/b", "https://a/#f", "//a", "https://u:p@a/"],
)
def test_corner_case_24_metadata_without_tls_is_not_asked(url: str) -> None:
    world = World()
    with pytest.raises(LoginFailed, match=r"expected an https:// URL"):
        world.run(discover(URL, BearerChallenge(url)))
    assert world.requests == []


def test_corner_case_24_a_refused_request_ends_the_login() -> None:
    """The driver refuses addresses, and does not follow redirects: neither leads anywhere else."""
    world = World()
    named = BearerChallenge("https://169.254.169.254/latest")
    world.answers[named.resource_metadata] = FetchFailed(
        "https://169.254.169.254: a link-local address", is_unsent=True
    )
    with pytest.raises(LoginFailed, match="a link-local address"):
        world.run(discover(URL, named))
    assert len(world.requests) == 1
    world.answers[named.resource_metadata] = Fetched(302, b"")
    with pytest.raises(LoginFailed, match="HTTP status 302"):
        world.run(discover(URL, named))
    assert len(world.requests) == 2


def test_a_login_without_tls_is_for_loopback_only() -> None:
    with pytest.raises(LoginFailed, match="without TLS"):
        World().run(discover("http://mcp.example/mcp", BearerChallenge()))
    world = World()
    world.run(discover("http://localhost:9000/mcp", BearerChallenge()))
    assert world.urls[0] == "http://localhost:9000/.well-known/oauth-protected-resource/mcp"


def test_an_unreachable_server_is_no_server_without_metadata() -> None:
    world = World()
    world.answers[RESOURCE_AT_PATH] = FetchFailed("https://mcp.example: refused")
    with pytest.raises(LoginFailed, match="refused") as failed:
        world.run(discover(URL, BearerChallenge()))
    assert failed.value.is_unanswered
