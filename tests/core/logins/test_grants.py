"""Logins without a person, and the renewal of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.grants import (
    ID_TOKEN,
    EnterpriseProvider,
    Subject,
    exchange,
    log_in_client,
    log_in_enterprise,
    refresh,
)
from isthmus.core.logins.login import LoginSettings
from isthmus.core.logins.registration import ClientSettings
from isthmus.core.logins.requests import LoginFailed, Registration, Tokens
from isthmus.core.logins.token_requests import ASSERTION_TTL_S, KNOWN_ERRORS
from login_world import ISSUER, NOW, URL, World, basic, json_reply

SECRET = ClientSettings("svc", "the-client-secret", ISSUER)
METHODS = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}


def settings(**changes: Any) -> LoginSettings:
    return LoginSettings(**{"url": URL, "client": SECRET, **changes})


def test_refresh_sends_the_token_and_the_resource() -> None:
    world = World()
    tokens = world.run(refresh(f"{ISSUER}/token", Registration(ISSUER, "c"), "old", resource=URL))
    assert world.form() == {"grant_type": "refresh_token", "refresh_token": "old", "client_id": "c", "resource": URL}
    assert tokens == Tokens("the-access-token", "the-refresh-token", 3600.0)


def test_a_client_logs_in_with_its_secret() -> None:
    """SEP-1046; the registration of the settings, never another."""
    world = World(server=METHODS)
    challenge = BearerChallenge(scope=("a",))
    login = world.run(log_in_client(settings(), challenge, entropy=world.entropy, now=NOW))
    assert basic(world.requests[-1]) == ("svc", "the-client-secret")
    assert world.form() == {"grant_type": "client_credentials", "scope": "a", "resource": URL}
    assert (login.registration.method, login.scope) == ("client_secret_basic", ("a",))
    assert world.pages == []


def test_a_client_logs_in_with_its_key() -> None:
    """RFC 7523, 3, and RFC 9700: the audience is the issuer."""
    world, signed = World(), []

    def sign(claims: Any) -> str:
        signed.append(claims)
        return "head.claims.signature"

    client = ClientSettings("svc")
    flow = log_in_client(settings(client=client), BearerChallenge(), entropy=world.entropy, now=NOW, sign=sign)
    assert world.run(flow).registration.method == "private_key_jwt"
    identifier = signed[0].pop("jti")
    assert len(identifier) == 22
    assert signed == [
        {"iss": "svc", "sub": "svc", "aud": ISSUER, "iat": int(NOW), "exp": int(NOW) + ASSERTION_TTL_S},
    ]
    assert world.form() == {
        "grant_type": "client_credentials",
        "client_id": "svc",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "head.claims.signature",
        "resource": URL,
    }


def test_a_client_without_a_secret_cannot_log_in() -> None:
    world = World(server=METHODS)
    flow = log_in_client(settings(client=ClientSettings("svc")), BearerChallenge(), entropy=world.entropy, now=NOW)
    with pytest.raises(LoginFailed, match="needs client_id and client_secret"):
        world.run(flow)
    assert not any(each.method == "POST" for each in world.requests)


def test_corner_case_22_a_secret_is_not_sent_to_another_provider() -> None:
    world = World(issuer="https://new.example/realms/a")
    found = world.answers.pop("https://as.example/.well-known/oauth-authorization-server/realms/a")
    world.answers["https://new.example/.well-known/oauth-authorization-server/realms/a"] = found
    with pytest.raises(LoginFailed, match=r"registered at https://as\.example/realms/a"):
        world.run(log_in_client(settings(), BearerChallenge(), entropy=world.entropy, now=NOW))
    assert not any(each.method == "POST" for each in world.requests)


def test_exchange_of_a_token() -> None:
    """RFC 8693, 2.1."""
    world = World(server=METHODS)
    login = world.run(exchange(settings(), BearerChallenge(), Subject("the-code")))
    assert world.form() == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": "the-code",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "resource": URL,
    }
    assert login.tokens.access_token == "the-access-token"
    assert "the-code" not in repr(Subject("the-code"))


@pytest.mark.parametrize("code", ["invalid_request", "invalid_grant"])
def test_a_token_that_is_not_taken_is_named(code: str) -> None:
    """RFC 8693, 2.2.2. The platform may have written another one when it is tried again."""
    world = World(server=METHODS)
    world.answers[f"{ISSUER}/token"] = json_reply({"error": code}, 400)
    with pytest.raises(LoginFailed, match="it does not take the token in /run/t, expected a valid one") as failed:
        world.run(exchange(settings(), BearerChallenge(), Subject("the-code", name="the token in /run/t")))
    assert (failed.value.is_unanswered, failed.value.is_refused) == (True, False)


@pytest.mark.parametrize("code", sorted(KNOWN_ERRORS - {"invalid_request", "invalid_grant"}))
def test_another_error_of_an_exchange_is_not_of_its_token(code: str) -> None:
    world = World(server=METHODS)
    world.answers[f"{ISSUER}/token"] = json_reply({"error": code}, 400)
    with pytest.raises(LoginFailed, match=code) as failed:
        world.run(exchange(settings(), BearerChallenge(), Subject("the-code")))
    assert "subject_token" not in str(failed.value)


IDP = "https://idp.example/token"
PROVIDER = EnterpriseProvider("https://idp.example", ClientSettings("idp-client", "", "https://idp.example"))
IDP_METADATA = "https://idp.example/.well-known/openid-configuration"
JAG = "urn:ietf:params:oauth:token-type:id-jag"


def test_the_grant_of_an_enterprise() -> None:
    """SEP-990: an exchange at the enterprise's provider, then RFC 7523 at the authorization server of the server."""
    world = World(server=METHODS)
    world.answers[IDP_METADATA] = json_reply({"issuer": "https://idp.example", "token_endpoint": IDP})
    world.answers[IDP] = json_reply({"access_token": "the-jag", "issued_token_type": JAG, "token_type": "N_A"})
    flow = log_in_enterprise(settings(scope=("a",)), BearerChallenge(), Subject("the-code", ID_TOKEN), PROVIDER)
    assert world.run(flow).tokens.access_token == "the-access-token"
    assert world.urls[-2:] == [IDP, f"{ISSUER}/token"]
    assert world.form(-2) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": JAG,
        "subject_token": "the-code",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": ISSUER,
        "resource": URL,
        "scope": "a",
        "client_id": "idp-client",
    }
    assert world.form() == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "the-jag",
        "resource": URL,
        "scope": "a",
    }
    assert basic(world.requests[-1]) == ("svc", "the-client-secret")


def test_another_token_than_a_grant_is_not_passed_on() -> None:
    world = World(server=METHODS)
    world.answers[IDP_METADATA] = json_reply({"issuer": "https://idp.example", "token_endpoint": IDP})
    world.answers[IDP] = json_reply({"access_token": "the-access-token", "token_type": "Bearer"})
    with pytest.raises(LoginFailed, match="another token than an ID-JAG"):
        world.run(log_in_enterprise(settings(), BearerChallenge(), Subject("x", ID_TOKEN), PROVIDER))
    assert world.urls[-1] == IDP


def test_an_id_token_is_not_sent_to_another_provider() -> None:
    """The metadata has to be of the issuer that is configured."""
    world = World(server=METHODS)
    world.answers[IDP_METADATA] = json_reply({"issuer": "https://other.example", "token_endpoint": IDP})
    with pytest.raises(LoginFailed, match="expected the same text"):
        world.run(log_in_enterprise(settings(), BearerChallenge(), Subject("x", ID_TOKEN), PROVIDER))
    assert not any(each.method == "POST" for each in world.requests)


def test_a_grant_that_is_not_taken_names_its_provider() -> None:
    world = World(server=METHODS)
    world.answers[IDP_METADATA] = json_reply({"issuer": "https://idp.example", "token_endpoint": IDP})
    world.answers[IDP] = json_reply({"access_token": "the-jag", "issued_token_type": JAG, "token_type": "N_A"})
    world.answers[f"{ISSUER}/token"] = json_reply({"error": "invalid_grant"}, 400)
    with pytest.raises(LoginFailed, match=r"does not take the grant of https://idp\.example") as failed:
        world.run(log_in_enterprise(settings(), BearerChallenge(), Subject("x", ID_TOKEN), PROVIDER))
    assert failed.value.is_unanswered
