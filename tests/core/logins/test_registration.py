"""Registration: the order in which a client is chosen, and that none is used at another authorization server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from isthmus.core.logins.requests import Fetched, FetchFailed, LoginFailed, Registration
from login_world import ISSUER, NOW, World, basic, header, json_reply

DOCUMENT = "https://isthmus.example/client.json"
REGISTER = f"{ISSUER}/register"
REDIRECT = "http://127.0.0.1:33418/callback"
KNOWN = {ISSUER: Registration(ISSUER, "known", redirect=REDIRECT)}


def test_1_a_client_that_was_registered_by_hand_comes_first() -> None:
    world = World(server={"client_id_metadata_document_supported": True})
    login = world.log_in(client_id="by-hand", known=KNOWN)
    assert world.asked["client_id"] == login.registration.client_id == "by-hand"
    assert REGISTER not in world.urls
    assert world.asked["redirect_uri"] == "http://localhost:33418/callback"


def test_2_a_metadata_document_comes_second() -> None:
    """SEP-991."""
    world = World(server={"client_id_metadata_document_supported": True})
    login = world.log_in(client_id=DOCUMENT, known=KNOWN)
    assert world.asked["client_id"] == DOCUMENT
    assert login.registration == Registration(ISSUER, DOCUMENT, redirect=REDIRECT)
    assert REGISTER not in world.urls


def test_3_a_registration_of_an_earlier_login_comes_third() -> None:
    world = World()
    assert world.log_in(client_id=DOCUMENT, known=KNOWN).registration.client_id == "known"
    assert REGISTER not in world.urls


def test_a_registration_of_an_earlier_login_is_not_used_for_other_scopes() -> None:
    """Providers refuse a client the scopes that it did not name when it was registered (RFC 7591, 2)."""
    world = World()
    first = world.log_in(scope=("a", "b")).registration
    assert first.scope == ("a", "b")
    known = {ISSUER: msgspec.structs.replace(first, client_id="known")}
    assert world.log_in(scope=("b",), known=known).registration.client_id == "known"
    wider = world.log_in(scope=("c",), earlier=("a", "b"), known=known).registration
    assert (wider.client_id, wider.scope) == ("registered", ("a", "b", "c"))


def test_4_a_new_registration_is_for_a_native_application() -> None:
    """2026-07-28: "MCP clients MUST specify an appropriate `application_type`"."""
    world = World()
    world.log_in(scope=("a", "b"))
    request = next(each for each in world.requests if each.url == REGISTER)
    assert (request.method, header(request, b"content-type")) == ("POST", "application/json")
    assert msgspec.json.decode(request.body) == {
        "client_name": "Isthmus",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": "a b",
    }
    assert world.asked["client_id"] == "registered"


def test_5_without_any_the_message_says_what_to_set() -> None:
    world = World(server={"registration_endpoint": None})
    with pytest.raises(LoginFailed) as failed:
        world.log_in()
    assert str(failed.value) == (
        f"{ISSUER} takes no registrations (no registration_endpoint, no client id documents): "
        f"register {REDIRECT} there and set client_id"
    )


def test_a_document_is_not_shown_to_a_server_that_takes_none() -> None:
    with pytest.raises(LoginFailed, match="takes no registrations"):
        World(server={"registration_endpoint": None}).log_in(client_id=DOCUMENT)


@pytest.mark.parametrize(
    "known",
    [
        {"https://other.example": Registration("https://other.example", "known", redirect=REDIRECT)},
        {ISSUER: Registration("https://other.example", "known", redirect=REDIRECT)},
        {ISSUER: Registration(ISSUER, "known", redirect="http://127.0.0.1:1/callback")},
        {ISSUER: Registration(ISSUER, "known", "s", "client_secret_post", REDIRECT, NOW)},
    ],
    ids=["another issuer", "filed under another issuer", "another port", "an expired secret"],
)
def test_corner_case_22_a_registration_that_does_not_fit_is_not_used(known: dict[str, Registration]) -> None:
    """SEP-2352: credentials are keyed by the issuer, and never reused at another."""
    world = World()
    assert world.log_in(known=known).registration.client_id == "registered"
    assert not any(b"known" in each.body for each in world.requests)


def test_corner_case_22_a_client_by_hand_is_not_used_at_another_server() -> None:
    world = World()
    with pytest.raises(LoginFailed, match=r"registered at https://old\.example, and the server now names"):
        world.log_in(client_id="by-hand", client_secret="the-client-secret", client_issuer="https://old.example")
    assert world.pages == []
    assert not any(each.method == "POST" for each in world.requests)
    assert world.log_in(client_id="by-hand", client_issuer=ISSUER).registration.client_id == "by-hand"


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        (None, "none"),
        (["none", "client_secret_basic"], "none"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["client_secret_post", "private_key_jwt"], "client_secret_post"),
        (["tls_client_auth"], "none"),
    ],
)
def test_the_method_that_is_registered(listed: list[str] | None, wanted: str) -> None:
    world = World(server={"token_endpoint_auth_methods_supported": listed})
    world.log_in()
    request = next(each for each in world.requests if each.url == REGISTER)
    assert msgspec.json.decode(request.body)["token_endpoint_auth_method"] == wanted


@pytest.mark.parametrize(
    ("listed", "answered", "used"),
    [
        (["none"], {}, "none"),
        (["none"], {"client_secret": "the-client-secret"}, "none"),
        (None, {"client_secret": "the-client-secret"}, "client_secret_basic"),
        (["client_secret_post"], {"client_secret": "the-client-secret"}, "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], {"client_secret": "the-client-secret"}, "client_secret_basic"),
        (
            ["client_secret_basic"],
            {"client_secret": "the-client-secret", "token_endpoint_auth_method": "client_secret_post"},
            "client_secret_post",
        ),
        (
            ["client_secret_basic"],
            {"client_secret": "the-client-secret", "token_endpoint_auth_method": "none"},
            "none",
        ),
        (["client_secret_basic"], {"token_endpoint_auth_method": "client_secret_basic"}, "none"),
    ],
)
def test_how_a_client_authenticates(listed: list[str] | None, answered: dict[str, str], used: str) -> None:
    world = World(server={"token_endpoint_auth_methods_supported": listed})
    world.answers[REGISTER] = json_reply({"client_id": "a:b", **answered}, 201)
    assert world.log_in().registration.method == used
    request, form = world.requests[-1], world.form()
    assert ("client_secret" in form) is (used == "client_secret_post")
    assert bool(header(request, b"authorization")) is (used == "client_secret_basic")
    if used == "client_secret_basic":
        assert basic(request) == ("a:b", "the-client-secret")
        assert "client_id" not in form
    else:
        assert form["client_id"] == "a:b"


def test_the_parts_of_basic_are_encoded() -> None:
    """RFC 6749, 2.3.1: both are form-urlencoded before they are joined by a colon."""
    world = World(server={"token_endpoint_auth_methods_supported": ["client_secret_basic"]})
    world.log_in(client_id="a:b c", client_secret="%:é/+")
    assert basic(world.requests[-1]) == ("a:b c", "%:é/+")


@pytest.mark.parametrize(
    ("host", "advice"), [("", "set redirect_host: localhost"), ("localhost", "set redirect_host: 127.0.0.1")]
)
def test_a_refused_redirect_uri_says_what_to_set(host: str, advice: str) -> None:
    world = World()
    world.answers[REGISTER] = json_reply({"error": "invalid_redirect_uri", "error_description": "evil text"}, 400)
    with pytest.raises(LoginFailed, match=advice) as failed:
        world.log_in(redirect_host=host)
    assert "evil" not in str(failed.value)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (json_reply({"error": "invalid_client_metadata"}, 400), "invalid_client_metadata"),
        (json_reply({"error": "the-client-secret"}, 403), "HTTP status 403"),
        (Fetched(500, b"<html>evil"), "HTTP status 500"),
        (json_reply({}, 201), "gave no client_id"),
        (Fetched(201, b"evil"), "gave no client_id"),
        (FetchFailed("https://as.example: lost"), "lost"),
    ],
)
def test_a_failed_registration_says_why_and_repeats_no_body(reply: Any, text: str) -> None:
    world = World()
    world.answers[REGISTER] = reply
    with pytest.raises(LoginFailed, match=text) as failed:
        world.log_in()
    assert not any(each in str(failed.value) for each in ("evil", "the-client-secret"))
    assert world.pages == []


def test_a_secret_is_kept_with_its_expiry() -> None:
    world = World(server={"token_endpoint_auth_methods_supported": ["client_secret_post"]})
    reply = {"client_id": "c", "client_secret": "the-client-secret", "client_secret_expires_at": 1_900_000_000}
    world.answers[REGISTER] = json_reply(reply, 201)
    found = world.log_in().registration
    assert (found.client_secret, found.secret_expires_at) == ("the-client-secret", 1_900_000_000)
    assert "the-client-secret" not in repr(found)
