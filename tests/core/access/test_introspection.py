"""Introspection: an issuer is asked about tokens, its answers hold for a minute, and no secret is written anywhere."""

from __future__ import annotations

import base64
import json
import urllib.parse
from typing import Any

import pytest
from issuer_scenes import AUDIENCES, ENDPOINT, ISSUER, NOW, Driver, IssuerServer, claims, issuers, reason_of, sign
from isthmus.core.access.identity import Identity
from isthmus.core.access.introspection import INTROSPECTION_KEPT_S
from isthmus.core.access.issuer_answers import IntrospectionWanted, MetadataWanted, Refused, Reply, Unavailable, Waits
from isthmus.core.access.issuer_settings import IntrospectionSettings, IssuerSettings
from isthmus.core.access.issuers import ASKED_MAX, ASKED_S, REFUSED_KEPT_S, UNAVAILABLE_KEPT_S
from isthmus.core.access.json_web_tokens import TOKEN_MAX_CHARS

CREDENTIALS = IntrospectionSettings("isthmus", "the client's secret")
SETTINGS = IssuerSettings(ISSUER, groups="groups", implies={"write": ("read",)}, introspection=CREDENTIALS)
TOKEN = "an opaque token"


def active(**changes: object) -> dict[str, object]:
    """Returns the answer about a good token."""
    return {"active": True, **claims(**changes)}


def asked(answer: object = None, settings: IssuerSettings = SETTINGS) -> Driver:
    """Returns a driver whose issuer says this of `TOKEN`."""
    server = IssuerServer()
    server.tokens[TOKEN] = active() if answer is None else answer
    return Driver(issuers(settings), server)


def test_an_active_token_names_its_caller() -> None:
    driver = asked(active(groups=["admins"], scope="write"))
    assert driver.checks.names(TOKEN)
    answer = driver.check(TOKEN)
    assert isinstance(answer, Identity)
    assert answer.principal == f"jwt:{ISSUER}|alice"
    assert answer.scopes == {"read", "write"}
    assert answer.groups == {"admins"}
    assert answer.expires_at == NOW + 3630
    assert answer.via == "introspection"


def test_the_question_is_that_of_the_specification() -> None:
    """RFC 7662, 2.1: a form with the token; the client's credentials are form-encoded (RFC 6749, 2.3.1)."""
    request = IntrospectionWanted(ISSUER, f"{ISSUER}/ask", "a+b/c=&token=d", "cliént:1", "s e/cret")
    assert request.method == "POST"
    assert urllib.parse.parse_qs(request.body.decode(), strict_parsing=True) == {
        "token": ["a+b/c=&token=d"],
        "token_type_hint": ["access_token"],
    }
    headers = dict(request.headers)
    assert headers[b"content-type"] == b"application/x-www-form-urlencoded"
    scheme, _, pair = headers[b"authorization"].partition(b" ")
    assert scheme == b"Basic"
    assert base64.b64decode(pair) == b"cli%C3%A9nt%3A1:s+e%2Fcret"


def test_the_endpoint_is_discovered_or_named_by_the_settings() -> None:
    driver = asked()
    assert isinstance(driver.check(TOKEN), Identity)
    sent = driver.servers[ISSUER].sent
    assert [type(request) for request in sent] == [*[MetadataWanted] * 3, IntrospectionWanted]
    assert sent[-1].url == f"{ISSUER}/ask"
    credentials = IntrospectionSettings("isthmus", "s", "https://elsewhere.example/ask")
    named = asked(settings=IssuerSettings(ISSUER, introspection=credentials))
    assert isinstance(named.check(TOKEN), Identity)
    assert [request.url for request in named.servers[ISSUER].sent] == ["https://elsewhere.example/ask"]
    assert named.checks.due(NOW) == []


def test_metadata_without_an_introspection_endpoint_are_useless() -> None:
    driver = asked()
    driver.servers[ISSUER].metadata.pop("introspection_endpoint")
    answer = driver.check(TOKEN)
    assert isinstance(answer, Unavailable)
    assert "names no usable introspection_endpoint" in answer.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"active": False}, "its issuer says that it is not active"),
        ({"active": False, **claims()}, "its issuer says that it is not active"),
        (active(exp=int(NOW) - 60), "it expired 60 s ago"),
        (active(nbf=int(NOW) + 60), "it is not valid for another 60 s"),
        (active(iss="https://other.example"), "its issuer says that another one has issued it"),
        (active(aud=None), "it does not say which resource it is for (aud)"),
        (active(sub=None), "it names no caller (sub)"),
        (active(scope=7), "its scopes cannot be read"),
    ],
)
def test_the_rules_are_those_of_other_tokens(answer: dict[str, object], reason: str) -> None:
    driver = asked(answer)
    for _ in range(2):
        assert reason_of(driver.check(TOKEN)).startswith(reason)


def test_another_audience_is_refused_from_memory_too() -> None:
    driver = asked(active(aud="https://a.example"))
    for _ in range(2):
        assert reason_of(driver.check(TOKEN)).startswith("this token is for https://a.example, expected")
    assert driver.servers[ISSUER].count(IntrospectionWanted) == 1


def test_iss_and_exp_may_be_missing() -> None:
    """RFC 7662, 2.2: both are optional."""
    answer = asked(active(iss=None, exp=None)).check(TOKEN)
    assert isinstance(answer, Identity)
    assert answer.expires_at is None


@pytest.mark.parametrize(
    ("answer", "kept_s"),
    [
        (active(exp=None), INTROSPECTION_KEPT_S),
        (active(), INTROSPECTION_KEPT_S),
        (active(exp=int(NOW) + 10), 40.0),
        ({"active": False}, REFUSED_KEPT_S),
        ({"active": "true"}, UNAVAILABLE_KEPT_S),
    ],
)
def test_an_answer_holds_for_a_time(answer: dict[str, object], kept_s: float) -> None:
    driver = asked(answer)
    server = driver.servers[ISSUER]
    first = driver.check(TOKEN)
    driver.now = NOW + kept_s - 1
    assert driver.check(TOKEN) == first
    assert server.count(IntrospectionWanted) == 1
    driver.now = NOW + kept_s
    driver.check(TOKEN)
    assert server.count(IntrospectionWanted) == 2


def test_a_revoked_token_works_for_a_minute_at_most() -> None:
    driver = asked()
    assert isinstance(driver.check(TOKEN), Identity)
    driver.servers[ISSUER].tokens.clear()
    driver.now += INTROSPECTION_KEPT_S
    assert isinstance(driver.check(TOKEN), Refused)


def begun(driver: Driver, token: str = TOKEN) -> IntrospectionWanted:
    """Returns the question about a token, when the metadata were read."""
    answer = driver.checks.check(token, AUDIENCES, driver.now)
    while isinstance(answer, Waits) and isinstance(answer.request, MetadataWanted):
        driver.fetch(answer.request)
        answer = driver.checks.check(token, AUDIENCES, driver.now)
    assert isinstance(answer, Waits)
    assert isinstance(answer.request, IntrospectionWanted)
    return answer.request


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(401), "answered 401: are client_id and client_secret right?"),
        (Reply(500), "answered 500"),
        (Reply(302, ((b"location", b"https://evil.example"),)), "answered 302"),
        (Reply(200, (), b"<html>"), "the introspection answer is no JSON"),
        (Reply(200, (), b"[]"), "the introspection answer is no JSON object"),
        (Reply(200, (), b"{}"), "does not say whether the token is active"),
        (Reply(200, (), b'{"active":1}'), "does not say whether the token is active"),
        (Reply(200, (), b" " * 65536 + b"{}"), "has more than 65536 bytes"),
        (None, "cannot be asked about the token: connection refused"),
    ],
)
def test_no_answer_is_no_yes_and_no_fault_of_the_token(reply: Reply | None, reason: str) -> None:
    driver = asked()
    request = begun(driver)
    if reply is None:
        driver.checks.failed(request, NOW, "connection refused")
    else:
        driver.checks.fetched(request, reply, NOW)
    answer = driver.checks.check(TOKEN, AUDIENCES, NOW)
    assert isinstance(answer, Unavailable)
    assert answer.retry_after_s == UNAVAILABLE_KEPT_S
    assert reason in answer.reason


def test_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    driver = asked()
    request = begun(driver)
    reply = Reply(200, (), json.dumps(active()).encode())
    driver.checks.fetched(IntrospectionWanted(ISSUER, request.url, "another token", "a", "b"), reply, NOW)
    assert isinstance(driver.checks.check("another token", AUDIENCES, NOW), Waits)
    driver.checks.failed(IntrospectionWanted(ISSUER, request.url, "a third token", "a", "b"), NOW)
    assert isinstance(driver.checks.check("a third token", AUDIENCES, NOW), Waits)
    driver.checks.fetched(IntrospectionWanted("https://other.example", request.url, TOKEN, "a", "b"), reply, NOW)
    assert isinstance(driver.checks.check(TOKEN, AUDIENCES, NOW), Waits)


def test_equal_questions_are_one_request() -> None:
    driver = asked()
    assert begun(driver) == begun(driver)
    assert hash(begun(driver)) == hash(begun(driver))
    assert begun(driver) != begun(driver, "another token")


def test_tokens_that_an_issuer_is_asked_about_are_bounded() -> None:
    driver = asked()
    for number in range(ASKED_MAX):
        begun(driver, f"token {number}")
    refused = driver.checks.check(TOKEN, AUDIENCES, driver.now)
    assert refused == Unavailable(1, f"{ISSUER} is being asked about too many tokens")
    driver.fetch(begun(driver, "token 0"))
    assert isinstance(driver.check(TOKEN), Identity)
    begun(driver, "token 0 again")
    driver.now += ASKED_S  # the driver has lost the questions
    begun(driver, "another token")


def test_a_token_that_is_too_long_is_not_asked_about() -> None:
    driver = asked()
    assert isinstance(driver.check("a" * (TOKEN_MAX_CHARS + 1)), Refused)
    assert driver.servers[ISSUER].count(IntrospectionWanted) == 0


def test_each_token_goes_to_its_issuer_only() -> None:
    """A token of one issuer is not shown to another one."""
    url = "https://jwt.example"
    servers = IssuerServer(), IssuerServer(url)
    driver = Driver(issuers(SETTINGS, IssuerSettings(url)), *servers)
    signed, own, foreign = (sign(claims(iss=iss)) for iss in (url, ISSUER, "https://foreign.example"))
    servers[0].tokens = {token: active() for token in (signed, own, foreign, TOKEN, "a.b.c")}
    answers = [driver.check(token) for token in (signed, own, foreign, TOKEN, "a.b.c")]
    assert [answer.via if isinstance(answer, Identity) else "" for answer in answers] == [
        "jwt",
        "introspection",
        "",
        "introspection",
        "introspection",
    ]
    shown = [request.token for request in servers[0].sent if isinstance(request, IntrospectionWanted)]
    assert shown == [own, TOKEN, "a.b.c"]
    wrong = sign(claims(iss=url), header={"typ": "oauth-id-jag+jwt"})
    assert isinstance(driver.check(wrong), Refused)
    assert all(request.token != wrong for request in servers[0].sent if isinstance(request, IntrospectionWanted))


def test_no_text_shows_a_secret() -> None:
    driver = asked(active(sub="alice"))
    request = begun(driver)
    reply = Reply(200, (), json.dumps(active()).encode())
    answers: list[Any] = [driver.checks.check(TOKEN, AUDIENCES, NOW), request, SETTINGS, CREDENTIALS, reply]
    driver.checks.fetched(request, reply, NOW)
    answers += [driver.checks.check(TOKEN, [ENDPOINT], NOW), driver.checks.check(TOKEN, ["https://other.example"], NOW)]
    for answer in answers:
        for text in (repr(answer), str(answer)):
            assert TOKEN not in text
            assert "client's secret" not in text
