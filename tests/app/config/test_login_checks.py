"""The checks of `upstream.auth`, each at the key that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.login_checks import http_url
from isthmus.app.config.login_settings import ClientCredentials, Enterprise, Exchange, IdentityProvider, OAuth
from isthmus.app.config.settings import Upstream

URL = "https://mcp.example/mcp"
SECRET = {"type": "client_credentials", "client_id": "c", "client_secret": "s"}
EXCHANGE = {"type": "exchange", "client_id": "c", "client_secret": "s"}
ENTERPRISE = {**EXCHANGE, "type": "enterprise", "subject_token": "t"}


def load(auth: dict[str, Any], *, inspect: bool = True, **upstream: Any) -> Upstream:
    server = {"id": "a", "inspect": inspect, "upstream": {"url": URL, "auth": auth, **upstream}}
    return loads(json.dumps({"servers": [server]}), "json", "/", {"SECRET": "of-c"}).servers[0].upstream


def test_the_settings_of_both_types() -> None:
    auth = {
        "type": "oauth",
        "client_id": "c",
        "client_secret": "${SECRET}",
        "scope": ["a:b", "c"],
        "resource": "none",
        "issuer": "https://as.example/realms/a",
        "redirect_host": "localhost",
    }
    found = load(auth).auth
    assert isinstance(found, OAuth)
    assert (found.client_secret, found.scope, found.redirect_host) == ("of-c", ("a:b", "c"), "localhost")
    assert "of-c" not in repr(found)
    key = {"type": "client_credentials", "client_id": "c", "private_key": "/key.pem", "algorithm": "EdDSA"}
    assert load(key).auth == ClientCredentials(client_id="c", private_key="/key.pem", algorithm="EdDSA")
    assert load({"type": "oauth"}).auth == OAuth()


def test_the_settings_of_an_exchange() -> None:
    """The path of the token is one from the folder of the configuration; so is that of a private key."""
    found = load({**EXCHANGE, "subject_token_file": "run/token", "subject_token_type": "jwt"}).auth
    assert found == Exchange(
        client_id="c", client_secret="s", subject_token_file="/run/token", subject_token_type="jwt"
    )
    assert "'s'" not in repr(found)
    provider = {"issuer": "https://idp.example", "client_id": "at-idp", "client_secret": "${SECRET}"}
    found = load({**ENTERPRISE, "provider": provider}).auth
    assert isinstance(found, Enterprise)
    assert found.provider == IdentityProvider(issuer="https://idp.example", client_id="at-idp", client_secret="of-c")
    assert "of-c" not in repr(found) + repr(found.provider)
    key = load({"type": "client_credentials", "client_id": "c", "private_key": "key.pem"}).auth
    assert key == ClientCredentials(client_id="c", private_key="/key.pem")


@pytest.mark.parametrize(
    ("auth", "upstream", "text"),
    [
        ({"type": "other"}, {}, 'upstream.auth.type: got "other", expected one of oauth, client_credentials, exchange'),
        ({}, {}, "upstream.auth.type"),
        ({"type": "oauth", "token": "x"}, {}, "upstream.auth.token"),
        ({"type": "oauth"}, {"url": None, "command": ["x"]}, "upstream.auth: got"),
        ({"type": "oauth"}, {"url": "unix:///run/x"}, "upstream.auth: got"),
        ({"type": "oauth"}, {"url": "http://mcp.example/mcp"}, "expected https:// beside auth"),
        ({"type": "oauth"}, {"url": "ws://mcp.example/mcp"}, "expected https:// beside auth"),
        ({"type": "oauth"}, {"headers": {"AUTHORIZATION": "Bearer x"}}, "expected no Authorization beside auth"),
        ({"type": "oauth"}, {"pass_headers": {"X-A": "Authorization"}}, "expected no Authorization beside auth"),
        ({"type": "oauth"}, {"url": None, "urls": [URL, "http://b/mcp"]}, "upstream.urls[1]: got"),
        ({"type": "oauth"}, {"url": None, "urls": [URL, "https://b/mcp"]}, "upstream.urls: got several origins"),
        (
            {"type": "oauth", "resource": URL},
            {"url": None, "urls": [URL, "https://b/mcp"]},
            "upstream.urls: got several",
        ),
        ({"type": "oauth", "issuer": URL}, {"url": None, "urls": [URL, "https://b/mcp"]}, "upstream.urls: got several"),
        ({"type": "oauth", "scope": ["a b"]}, {}, "upstream.auth.scope"),
        ({"type": "oauth", "issuer": "http://as.example"}, {}, "upstream.auth.issuer"),
        ({"type": "oauth", "issuer": "https://as.example?x"}, {}, "upstream.auth.issuer"),
        ({"type": "oauth", "resource": "nothing"}, {}, "upstream.auth.resource"),
        ({"type": "oauth", "redirect_host": "0.0.0.0"}, {}, "upstream.auth.redirect_host"),
        ({"type": "oauth", "client_secret": "x"}, {}, "upstream.auth.client_secret"),
        ({"type": "client_credentials", "client_id": "c"}, {}, "one of client_secret and private_key"),
        ({**SECRET, "private_key": "/k"}, {}, "one of client_secret and private_key"),
        ({"type": "client_credentials", "client_secret": "c"}, {}, "upstream.auth.client_id: missing"),
        ({**SECRET, "algorithm": "HS256"}, {}, "upstream.auth.algorithm"),
        (EXCHANGE, {}, "one of subject_token and subject_token_file"),
        ({**EXCHANGE, "subject_token": "t", "subject_token_file": "/t"}, {}, "one of subject_token and subject_token"),
        ({**EXCHANGE, "subject_token": " "}, {}, "upstream.auth.subject_token: got an empty one"),
        ({**EXCHANGE, "subject_token_file": "~/t"}, {}, "upstream.auth.subject_token_file"),
        ({**EXCHANGE, "subject_token": "t", "subject_token_type": "saml2"}, {}, "upstream.auth.subject_token_type"),
        ({**EXCHANGE, "subject_token": "t", "provider": {}}, {}, "upstream.auth.provider"),
        (ENTERPRISE, {}, "upstream.auth.provider: missing"),
        (
            {**ENTERPRISE, "provider": {"issuer": "http://idp.example", "client_id": "c"}},
            {},
            "upstream.auth.provider.issuer: got",
        ),
    ],
)
def test_what_is_wrong_is_named(auth: dict[str, Any], upstream: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as failed:
        load(auth, **upstream)
    assert text in str(failed.value)


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "oauth", "client_secret": "TOP"},
        {"type": "oauth", "client_id": "c", "client_secret": ["TOP"]},
        {**SECRET, "client_secret": "TOP", "private_key": "/k"},
        {**EXCHANGE, "subject_token": "TOP", "subject_token_file": "/t"},
        {**ENTERPRISE, "subject_token": ["TOP"]},
        {"type": "oauth", "client_secrets": "TOP"},
        "TOP",
    ],
)
def test_a_secret_that_is_misplaced_is_not_shown(auth: Any) -> None:
    with pytest.raises(ConfigError) as failed:
        load(auth)
    assert "upstream.auth" in str(failed.value)
    assert "TOP" not in str(failed.value)


def test_requests_that_are_handed_on_as_they_are_have_no_login() -> None:
    with pytest.raises(ConfigError, match=r"upstream\.auth"):
        load({"type": "oauth"}, inspect=False)


@pytest.mark.parametrize(
    "url", [URL, "sse+https://h/sse", "wss://h/ws", "http://localhost:1/mcp", "ws://127.0.0.1:1/w"]
)
def test_urls_that_a_login_may_have(url: str) -> None:
    assert load({"type": "oauth"}, url=url).auth == OAuth()


def test_a_login_at_several_urls_is_at_one_origin_or_says_what_its_tokens_are_for() -> None:
    one = [f"{URL}/a", f"{URL}/b"]
    assert load({"type": "oauth"}, url=None, urls=one).urls == tuple(one)
    several = [URL, "https://other.example/mcp"]
    named = {"type": "oauth", "issuer": "https://as.example", "resource": URL}
    assert load(named, url=None, urls=several).urls == tuple(several)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h/mcp#x", "https://h/mcp"),
        ("SSE+https://h/sse", "https://h/sse"),
        ("wss://h/ws", "https://h/ws"),
        ("ws://wss/ws", "http://wss/ws"),
    ],
)
def test_the_http_url_of_a_server(url: str, expected: str) -> None:
    assert http_url(url) == expected
