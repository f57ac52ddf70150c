"""Tokens of issuers: which ones are accepted, and what callers are told about the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import pytest
from issuer_scenes import (
    AUDIENCES,
    ENDPOINT,
    ISSUER,
    KINDS,
    NOW,
    Driver,
    IssuerServer,
    base64url,
    claims,
    issuers,
    jwk,
    private_key,
    reason_of,
    settled,
    sign,
    verify,
)
from isthmus.core.access.claims import VALUES_MAX
from isthmus.core.access.identity import Identity
from isthmus.core.access.issuer_answers import KeysWanted, MetadataWanted, Refused, Unavailable, Waits
from isthmus.core.access.issuer_settings import IntrospectionSettings, IssuerSettings
from isthmus.core.access.issuers import KEPT_MAX, KEPT_S, REFUSED_KEPT_S, Issuers
from isthmus.core.access.key_sets import NAMELESS_KEYS_MAX, UNKNOWN_KEYS_MAX
from isthmus.core.base.errors import LocalProtocolError


def test_a_token_names_its_caller() -> None:
    settings = IssuerSettings(ISSUER, groups="roles")
    answer = settled(settings).check(sign(claims(roles=["admins", "staff"])))
    assert answer == Identity(
        principal=f"jwt:{ISSUER}|alice",
        scopes=frozenset({"mcp:read"}),
        groups=frozenset({"admins", "staff"}),
        expires_at=NOW + 3600 + 30,
        via="jwt",
        client_id="desktop",
        token_id=hashlib.sha256(b"one").hexdigest()[:16],
        issued_at=NOW,
    )


@pytest.mark.parametrize(("issued", "known"), [(NOW + 0.9, NOW), (None, None), ("today", None), (True, None)])
def test_a_token_tells_when_it_was_issued_if_it_does(issued: object, known: float | None) -> None:
    answer = settled().check(sign(claims(iat=issued)))
    assert isinstance(answer, Identity)
    assert answer.issued_at == known


@pytest.mark.parametrize("algorithm", KINDS)
def test_each_algorithm_is_accepted(algorithm: str) -> None:
    driver = settled(change=lambda server: server.keys.append(jwk(KINDS[algorithm])))
    assert isinstance(driver.check(sign(algorithm=algorithm)), Identity)


@pytest.mark.parametrize("algorithm", [name for name in KINDS if name != "RS256"])
def test_an_algorithm_that_the_settings_do_not_list_is_refused(algorithm: str) -> None:
    settings = IssuerSettings(ISSUER, algorithms=("RS256",))
    driver = settled(settings, lambda server: server.keys.append(jwk(KINDS[algorithm])))
    assert reason_of(driver.check(sign(algorithm=algorithm))) == "its algorithm is none of those of its issuer: RS256"


def test_case_2_a_token_of_another_audience_is_refused_and_says_which_one_is_right() -> None:
    driver = settled()
    for _ in range(2):  # before and after its signature is known
        assert reason_of(driver.check(sign(claims(aud="https://a.example/mcp")))) == (
            f"this token is for https://a.example/mcp, expected {ENDPOINT} or "
            "https://gateway.example.com/mcp: request it for that resource, or list it in auth.issuers[0].audience"
        )
    token = sign()
    assert isinstance(driver.check(token), Identity)
    elsewhere = driver.check(token, ["https://gateway.example.com/mcp/mail"])
    assert reason_of(elsewhere).startswith(
        f"this token is for {ENDPOINT}, expected https://gateway.example.com/mcp/mail"
    )
    assert isinstance(driver.check(token), Identity)


def test_an_audience_of_the_settings_is_accepted_everywhere() -> None:
    driver = settled(IssuerSettings(ISSUER, audience=("api://isthmus",)))
    token = sign(claims(aud=["other", "api://isthmus"]))
    assert isinstance(driver.check(token), Identity)
    assert isinstance(driver.check(token, ["https://gateway.example.com/mcp/mail"]), Identity)
    assert isinstance(driver.check(sign(claims(aud="api://isthmus/"))), Refused)


@pytest.mark.parametrize("aud", [None, [], 7, {"a": 1}, ["https://a.example", 7], ""])
def test_a_token_without_a_readable_audience_is_refused(aud: object) -> None:
    content = claims()
    content.pop("aud")
    assert isinstance(settled().check(sign(content if aud is None else {**content, "aud": aud})), Refused)


def test_case_4_a_scope_contains_others_also_by_way_of_others() -> None:
    implies = {"all": ("write", "list"), "write": ("read",), "read": ("write",)}
    driver = settled(IssuerSettings(ISSUER, implies=implies))
    for given, expected in (("all", "all write list read"), ("write x", "write read x"), ("list", "list")):
        answer = driver.check(sign(claims(scope=given)))
        assert isinstance(answer, Identity)
        assert answer.scopes == set(expected.split())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scope": "a b  c"}, "a b c"),
        ({"scope": ["a", "b"]}, "a b"),
        ({"scope": None, "scp": "a b"}, "a b"),
        ({"scope": None, "scp": ["a", "b"]}, "a b"),
        ({"scope": "a", "scp": "b"}, "a"),
        ({"scope": ""}, ""),
        ({"scope": None}, ""),
    ],
)
def test_scopes_are_read_in_the_forms_of_issuers(changes: dict[str, object], expected: str) -> None:
    answer = settled().check(sign(claims(**changes)))
    assert isinstance(answer, Identity)
    assert answer.scopes == set(expected.split())


@pytest.mark.parametrize(
    ("groups", "expected"), [(["a", "b c"], {"a", "b c"}), ("a b", {"a b"}), ([], set()), (None, set())]
)
def test_groups_are_a_list_or_one_text(groups: object, expected: set[str]) -> None:
    answer = settled(IssuerSettings(ISSUER, groups="groups")).check(sign(claims(groups=groups)))
    assert isinstance(answer, Identity)
    assert answer.groups == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": 7},
        {"scope": ["a", 7]},
        {"groups": {"a": 1}},
        {"groups": [7]},
        {"scope": "a " * (VALUES_MAX + 1)},
        {"groups": ["a"] * (VALUES_MAX + 1)},
    ],
)
def test_scopes_and_groups_that_cannot_be_read_are_refused(changes: dict[str, object]) -> None:
    reason = reason_of(settled(IssuerSettings(ISSUER, groups="groups")).check(sign(claims(**changes))))
    assert reason == f"its {'scopes' if 'scope' in changes else 'groups'} cannot be read, expected 1000 texts at most"


def test_another_claim_may_name_the_caller() -> None:
    driver = settled(IssuerSettings(ISSUER, principal="email"))
    answer = driver.check(sign(claims(email="alice@example.com")))
    assert isinstance(answer, Identity)
    assert answer.principal == f"jwt:{ISSUER}|alice@example.com"
    assert reason_of(driver.check(sign())).startswith("it names no caller (email)")


@pytest.mark.parametrize("sub", [None, "", 7, "a" * 257, "a\nb", "a\0"])
def test_a_caller_without_a_usable_name_is_refused(sub: object) -> None:
    assert isinstance(settled().check(sign(claims(sub=sub))), Refused)


def test_case_10_an_unknown_key_is_asked_for_once() -> None:
    driver = settled()
    assert isinstance(driver.check(sign()), Identity)
    server = driver.servers[ISSUER]
    driver.now += 60
    assert reason_of(driver.check(sign(header={"kid": "k7"}))) == (
        f"signed with key k7, which {ISSUER} does not publish (asked 0 s ago)"
    )
    assert server.count(KeysWanted) == 2


def test_case_10_a_thousand_unknown_keys_are_a_fetch_in_ten_seconds() -> None:
    driver = settled()
    driver.check(sign())
    server = driver.servers[ISSUER]
    begun_at = driver.now
    for at in range(1000):
        answer = driver.check(sign(header={"kid": f"k{at}"}))
        assert isinstance(answer, Refused)
    assert server.count(KeysWanted) - 1 <= (driver.now - begun_at) / 10


def test_a_new_key_is_read_when_it_is_used() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].keys = [jwk("RSA"), jwk("RSA new")]
    assert isinstance(driver.check(sign(key="RSA new")), Identity)  # the end of the pause is waited for
    assert driver.now == NOW + 10


def test_tokens_that_wait_for_unknown_keys_are_bounded() -> None:
    driver = settled()
    driver.check(sign())
    tokens = [sign(header={"kid": f"k{at}"}) for at in range(UNKNOWN_KEYS_MAX + 1)]
    answers = [driver.checks.check(token, AUDIENCES, driver.now + 1) for token in tokens]
    assert [type(answer) for answer in answers] == [Waits] * UNKNOWN_KEYS_MAX + [Unavailable]
    assert answers[-1] == Unavailable(9, "too many tokens wait for unknown keys of their issuer")
    assert len({answer.request for answer in answers if isinstance(answer, Waits)}) == 1


def test_tokens_wait_for_unknown_keys_again_after_an_attempt() -> None:
    driver = settled()
    driver.check(sign())
    for round in "abc":
        tokens = [sign(header={"kid": f"{round}{at}"}) for at in range(UNKNOWN_KEYS_MAX)]
        answers = [driver.checks.check(token, AUDIENCES, driver.now + 1) for token in tokens]
        assert all(isinstance(answer, Waits) for answer in answers)
        driver.check(tokens[0])  # the others have left


def test_two_requests_with_one_token_have_one_answer() -> None:
    """The second one does not wait for an attempt of its own when the first has its answer."""
    for is_up in (True, False):
        driver = settled()
        driver.check(sign())
        driver.servers[ISSUER].is_up = is_up
        token = sign(header={"kid": "k7"})
        assert isinstance(driver.checks.check(token, AUDIENCES, driver.now), Waits)
        answer = driver.check(token)
        assert isinstance(answer, Refused if is_up else Unavailable)
        assert driver.checks.check(token, AUDIENCES, driver.now) == answer


def test_metadata_without_keys_say_what_is_missing() -> None:
    driver = settled(change=lambda server: server.metadata.pop("jwks_uri"))
    answer = driver.check(sign())
    assert isinstance(answer, Unavailable)
    assert answer.reason.endswith("/realms/a/.well-known/openid-configuration names no usable jwks_uri")


def test_case_11_keys_that_were_never_read_are_no_fault_of_the_token() -> None:
    driver = settled()
    server = driver.servers[ISSUER]
    server.is_up = False
    answer = driver.check(sign())
    assert isinstance(answer, Unavailable)
    assert answer.retry_after_s == 10
    assert answer.reason == (
        f"the documents of {ISSUER} cannot be read: https://idp.example.com/.well-known/oauth-authorization-server/realms/a"
        " connection refused"
    )
    sent = len(server.sent)
    driver.now += 9
    assert driver.check(sign()) == Unavailable(1, answer.reason)
    assert len(server.sent) == sent
    server.is_up = True
    driver.now += 1
    assert isinstance(driver.check(sign()), Identity)


def test_case_11_an_unknown_key_is_no_fault_of_the_token_while_nobody_can_ask() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].is_up = False
    assert isinstance(driver.check(sign(header={"kid": "k7"})), Unavailable)
    assert isinstance(driver.check(sign(header={"kid": "k8"})), Unavailable)
    assert isinstance(driver.check(sign(claims(jti="two"))), Identity)


def test_case_11_keys_that_were_read_are_used_for_a_day_more() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].is_up = False
    for hour in range(1, 25):
        driver.now = NOW + hour * 3600
        assert isinstance(driver.check(sign(claims(exp=driver.now + 60))), Identity)
    driver.now = NOW + 25 * 3600
    assert isinstance(driver.check(sign(claims(exp=driver.now + 60))), Unavailable)


def test_nobody_waits_again_for_keys_that_could_not_be_read_anew() -> None:
    driver = settled()
    driver.check(sign())
    server = driver.servers[ISSUER]
    server.is_up = False
    driver.now += 3600
    driver.check(sign(claims(exp=driver.now + 60)))
    sent = len(server.sent)
    driver.now += 59
    driver.check(sign(claims(exp=driver.now + 60)))
    assert len(server.sent) == sent
    driver.now += 1
    driver.check(sign(claims(exp=driver.now + 60)))
    assert len(server.sent) > sent


CASE_12: dict[str, str] = {
    "a token that is not signed": sign(header={"alg": "none"}).rpartition(".")[0] + ".",
    "the algorithm none": sign(header={"alg": "none"}),
    "a secret's algorithm": sign(header={"alg": "HS256"}),
    "no algorithm": sign(header={"alg": None}),
    "another family's algorithm": sign(header={"alg": "ES256"}),
    "extensions": sign(header={"crit": ["exp"]}),
    "extensions that are empty": sign(header={"crit": []}),
    "content that is not encoded": sign(header={"b64": False}),
    "no exp": sign(claims(exp=None)),
    "exp that is a text": sign(claims(exp="1900000000")),
    "exp that is true": sign(claims(exp=True)),
    "an ID-JAG": sign(header={"typ": "oauth-id-jag+jwt"}),
    "a logout token": sign(header={"typ": "logout+jwt"}),
    "a proof of possession": sign(header={"typ": "dpop+jwt"}),
    "an ID token, by its audience": sign(claims(aud="desktop"), header={"typ": "JWT"}),
    "an ID token, by its claims": sign(claims(at_hash="x"), header={"typ": "JWT"}),
    "a type that is no text": sign(header={"typ": 7}),
    "a key's name that is no text": sign(header={"kid": 7}),
    "a key of its own": sign(key="RSA other", header={"kid": "RSA", "jwk": jwk("RSA other")}),
    "keys elsewhere": sign(key="RSA other", header={"jku": "https://a.example", "x5u": "https://a.example"}),
    "another signature": sign().rpartition(".")[0] + "." + sign(claims(sub="bob")).rpartition(".")[2],
    "half a byte": sign()[:-2],
    "bytes after it": sign() + "\n",
    "encryption": "a.b.c.d.e",
}


@pytest.mark.parametrize("case", CASE_12)
def test_case_12_what_is_no_access_token_is_refused(case: str) -> None:
    assert isinstance(settled().check(CASE_12[case]), Refused)


def test_a_public_key_is_no_secret() -> None:
    """RFC 8725, 2.1: a token "signed" with HMAC, with the text of the public key as its secret."""
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    driver = settled()
    assert isinstance(driver.check(sign()), Identity)
    public = private_key("RSA").public_key()
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(jwk("RSA")).encode(),
    ):
        message = base64url(b'{"alg":"HS256","kid":"RSA"}') + b"." + base64url(json.dumps(claims()).encode())
        token = message + b"." + base64url(hmac.digest(secret, message, "sha256"))
        assert isinstance(driver.check(token.decode()), Refused)


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt", None])
def test_types_of_access_tokens_are_accepted(kind: str | None) -> None:
    assert isinstance(settled().check(sign(header={"typ": kind})), Identity)


@pytest.mark.parametrize(("url", "named"), [("https://idp", "https://idp/"), ("https://idp/", "https://idp")])
def test_case_13_a_slash_makes_another_issuer(url: str, named: str) -> None:
    server = IssuerServer(url, jwks_uri="https://idp/keys")
    server.metadata_at = "https://idp/.well-known/openid-configuration"
    driver = Driver(issuers(IssuerSettings(url)), server)
    reason = f"its issuer is {named}, auth.issuers[0].url is {url}: both must be the same, character by character"
    assert reason_of(driver.check(sign(claims(iss=named)))) == reason
    assert isinstance(driver.check(sign(claims(iss=url))), Identity)


def test_case_13_metadata_of_another_issuer_are_not_used() -> None:
    driver = settled(change=lambda server: server.metadata.update(issuer=ISSUER + "/"))
    answer = driver.check(sign())
    assert isinstance(answer, Unavailable)
    assert f"names the issuer {ISSUER}/, auth.issuers[0].url is {ISSUER}: both must be the same" in answer.reason


def test_an_issuer_whose_documents_cannot_be_read_is_named_with_its_place() -> None:
    """One attempt tells, and the request for it is due until it has ended. Nothing is said of an issuer before that."""
    driver = settled(change=lambda server: server.metadata.update(issuer=ISSUER + "/"))
    assert driver.checks.problems() == []
    while wanted := driver.checks.first_requests(driver.now):
        driver.fetch(wanted[0])
    [problem] = driver.checks.problems()
    assert problem.startswith(f"auth.issuers[0]: the documents of {ISSUER} cannot be read: ")
    assert f"names the issuer {ISSUER}/, auth.issuers[0].url is {ISSUER}: both must be the same" in problem
    driver.servers[ISSUER].metadata["issuer"] = ISSUER
    driver.now += 10
    assert isinstance(driver.check(sign()), Identity)
    assert driver.checks.problems() == []


def test_an_issuer_with_an_address_for_questions_has_no_documents_to_be_asked_for() -> None:
    asked = IntrospectionSettings("client", "secret", f"{ISSUER}/ask")
    checks = issuers(IssuerSettings(ISSUER, introspection=asked))
    assert checks.first_requests(NOW) == []
    assert checks.problems() == []


def test_an_unknown_issuer_is_named() -> None:
    driver = settled()
    evil = 'https://evil.example/"\r\n\x00é' + "x" * 300
    reason = reason_of(driver.check(sign(claims(iss=evil))))
    assert reason.startswith('its issuer https://evil.example/"\\r\\n\\x00\\xe9xx')
    assert reason.endswith("xx... is none of auth.issuers")
    assert reason.isprintable()
    assert reason.isascii()
    assert driver.servers[ISSUER].sent == []


@pytest.mark.parametrize(("ahead_s", "is_accepted"), [(20, True), (30, True), (31, False), (45, False)])
def test_case_14_clocks_may_differ_by_half_a_minute(ahead_s: int, is_accepted: bool) -> None:
    answer = settled().check(sign(claims(nbf=int(NOW) + ahead_s, iat=int(NOW) + ahead_s)))
    assert isinstance(answer, Identity) is is_accepted
    if not is_accepted:
        assert reason_of(answer) == (
            f"it is not valid for another {ahead_s} s (nbf), and clocks may differ by 30 s; "
            "this machine's clock says 2027-01-15T08:00:00.000Z"
        )


@pytest.mark.parametrize(("ago_s", "is_accepted"), [(29, True), (30, False), (40, False)])
def test_an_expired_token_says_since_when(ago_s: int, is_accepted: bool) -> None:
    answer = settled().check(sign(claims(exp=int(NOW) - ago_s)))
    assert isinstance(answer, Identity) is is_accepted
    if not is_accepted:
        expected = f"it expired {ago_s} s ago; this machine's clock says 2027-01-15T08:00:00.000Z"
        assert reason_of(answer) == expected


@pytest.mark.parametrize("moment", [True, "1900000000", None, [1900000000], {}])
@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_a_moment_is_a_number(claim: str, moment: object) -> None:
    assert reason_of(settled().check(sign({**claims(), claim: moment}))) == f"its {claim} is no number of seconds"


@pytest.mark.parametrize("moment", [1e300, 10**400, NOW + 0.5])
def test_any_number_is_a_moment(moment: float) -> None:
    assert isinstance(settled().check(sign(claims(exp=moment))), Identity)
    assert reason_of(settled().check(sign(claims(nbf=moment * 2)))).startswith("it is not valid for another")
    assert reason_of(settled().check(sign(claims(exp=-moment)))).startswith("it expired")


def test_iat_is_not_judged() -> None:
    for iat in (0, int(NOW) + 10**6, "yesterday", None):
        assert isinstance(settled().check(sign(claims(iat=iat))), Identity)


@pytest.mark.parametrize("aud", [ENDPOINT, ENDPOINT + "/", [ENDPOINT + "/", "x"]])
@pytest.mark.parametrize("audiences", [(ENDPOINT,), (ENDPOINT + "/",), [ENDPOINT], frozenset({ENDPOINT})])
def test_case_15_a_slash_at_the_end_of_the_audience_does_not_count(aud: object, audiences: Collection[str]) -> None:
    driver = settled()
    token = sign(claims(aud=aud))
    for _ in range(2):
        assert isinstance(driver.check(token, audiences), Identity)


def test_an_endpoint_without_a_url_takes_tokens_of_the_listed_audiences_only() -> None:
    driver = settled(IssuerSettings(ISSUER, audience=("api://isthmus",)))
    expected = f"this token is for {ENDPOINT}, which is not in auth.issuers[0].audience"
    assert reason_of(driver.check(sign(), [])) == expected
    assert isinstance(driver.check(sign(claims(aud="api://isthmus")), []), Identity)


def test_a_refusal_names_some_of_many_audiences() -> None:
    reason = reason_of(settled().check(sign(claims(aud=[f"https://{letter}.example" for letter in "fedcba"]))))
    shown = "https://a.example, https://b.example, https://c.example and 3 more"
    assert reason.startswith(f"this token is for {shown}, expected")


@pytest.mark.parametrize("claim", ["sub", "jti"])
def test_names_are_texts_also_where_they_name_nobody(claim: str) -> None:
    driver = settled(IssuerSettings(ISSUER, principal="email"))
    assert isinstance(driver.check(sign(claims(email="a"))), Identity)
    assert reason_of(driver.check(sign(claims(email="a") | {claim: 7}))) == "its sub or its jti is no text"


@pytest.mark.parametrize("aud", [ENDPOINT + "//", ENDPOINT.upper(), ENDPOINT[:-1], ENDPOINT + "?", "", "/"])
def test_an_audience_that_is_nearly_right_is_wrong(aud: str) -> None:
    assert isinstance(settled().check(sign(claims(aud=aud))), Refused)


def test_a_token_that_was_accepted_is_not_verified_again_for_five_minutes() -> None:
    verified: list[str] = []

    def counted(*args: object) -> bool:
        verified.append("")
        return verify(*args)  # type: ignore[arg-type]

    driver = Driver(Issuers([IssuerSettings(ISSUER)], verify=counted), IssuerServer())
    token = sign(claims(exp=int(NOW) + 400))
    for after, count in ((0, 1), (KEPT_S - 1, 1), (KEPT_S, 2), (429, 2)):
        driver.now = NOW + after
        assert isinstance(driver.check(token), Identity)
        assert len(verified) == count
    driver.now = NOW + 430
    assert reason_of(driver.check(token)).startswith("it expired 30 s ago")


def test_a_token_that_was_refused_is_not_verified_again_for_ten_seconds() -> None:
    verified: list[str] = []
    driver = Driver(Issuers([IssuerSettings(ISSUER)], verify=lambda *_: bool(verified.append(""))), IssuerServer())
    token = sign()
    for after, count in ((0, 1), (REFUSED_KEPT_S - 1, 1), (REFUSED_KEPT_S, 4)):  # as documents are read again
        driver.now = NOW + after
        assert reason_of(driver.check(token)) == "its signature is wrong"
        assert len(verified) == count


def test_tokens_that_are_remembered_are_bounded() -> None:
    """The oldest one is verified again, of accepted and of refused ones; neither kind drives the other one out."""
    verified: list[bytes] = []

    def counted(key: object, algorithm: str, message: bytes, signature: bytes) -> bool:
        verified.append(message)
        return signature == b"good"

    driver = Driver(Issuers([IssuerSettings(ISSUER)], verify=counted), IssuerServer())
    header = base64url(b'{"alg":"RS256","kid":"RSA"}').decode()

    def token(number: int, signature: bytes = b"good") -> str:
        content = base64url(json.dumps(claims(jti=str(number))).encode()).decode()
        return f"{header}.{content}.{base64url(signature).decode()}"

    for number in range(KEPT_MAX + 1):
        assert isinstance(driver.check(token(number)), Identity)
    for number in range(KEPT_MAX + 1):
        assert isinstance(driver.check(token(number, b"bad")), Refused)
    verified.clear()
    for number in range(1, KEPT_MAX + 1):
        assert isinstance(driver.check(token(number)), Identity)
    assert verified == []
    assert isinstance(driver.check(token(0)), Identity)
    assert len(verified) == 1
    assert isinstance(driver.check(token(1, b"bad")), Refused)
    assert len(verified) == 1
    assert isinstance(driver.check(token(0, b"bad")), Refused)
    assert len(verified) == 2


def test_a_key_that_left_the_set_is_dead_at_once() -> None:
    driver = settled(change=lambda server: server.keys.append(jwk("RSA new")))
    token = sign()
    assert isinstance(driver.check(token), Identity)
    epoch = driver.checks.epoch
    driver.servers[ISSUER].keys = [jwk("RSA new")]
    assert isinstance(driver.check(token), Identity)  # nobody has read the new set
    driver.check(sign(header={"kid": "k7"}))
    assert driver.checks.epoch > epoch
    assert reason_of(driver.check(token)).startswith(f"signed with key RSA, which {ISSUER} does not publish")


def test_the_same_keys_change_nothing() -> None:
    driver = settled()
    driver.check(sign())
    epoch = driver.checks.epoch
    driver.check(sign(header={"kid": "k7"}))
    assert driver.checks.epoch == epoch


def test_a_new_key_with_the_name_of_the_old_one_is_read() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].keys = [jwk("RSA new", kid="RSA")]
    driver.now += 10
    assert isinstance(driver.check(sign(key="RSA new", header={"kid": "RSA"})), Identity)


def test_a_new_key_of_another_type_with_the_name_of_the_old_one_is_read() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].keys = [jwk("P-256", kid="RSA")]
    driver.now += 10
    assert isinstance(driver.check(sign(algorithm="ES256", header={"kid": "RSA"})), Identity)


def test_a_refusal_is_forgotten_when_the_keys_change() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].keys = [jwk("RSA new", kid="RSA")]
    token = sign(key="RSA new", header={"kid": "RSA"})
    driver.now += 9
    assert reason_of(driver.check(token)) == "its signature is wrong"
    driver.now += 1
    assert isinstance(driver.check(sign(claims(sub="bob"), key="RSA new", header={"kid": "RSA"})), Identity)
    assert isinstance(driver.check(token), Identity)


def test_a_token_may_name_no_key() -> None:
    driver = settled(change=lambda server: server.keys.extend([jwk("P-256"), jwk("RSA two")]))
    for key in ("RSA", "RSA two"):
        assert isinstance(driver.check(sign(key=key, header={"kid": None})), Identity)
    reason = reason_of(driver.check(sign(key="RSA other", header={"kid": None})))
    assert reason == f"it is signed with no key that {ISSUER} publishes, and names none (kid)"
    driver.servers[ISSUER].keys = [jwk("RSA other")]
    assert isinstance(driver.check(sign(claims(sub="bob"), key="RSA other", header={"kid": None})), Identity)


def test_keys_that_are_tried_for_a_token_that_names_none_are_bounded() -> None:
    driver = settled(
        change=lambda server: server.keys.extend(jwk("RSA", kid=f"k{at}") for at in range(NAMELESS_KEYS_MAX))
    )
    assert reason_of(driver.check(sign(header={"kid": None}))) == "it names no key (kid), and 5 keys of its issuer fit"


def test_an_algorithm_must_fit_the_key() -> None:
    keys = [jwk("RSA", alg="RS512"), jwk("P-256", alg="ES256")]
    driver = settled(change=lambda server: setattr(server, "keys", keys))
    assert isinstance(driver.check(sign(algorithm="RS512")), Identity)
    assert reason_of(driver.check(sign(algorithm="RS256"))) == "its algorithm does not fit key RSA"
    assert reason_of(driver.check(sign(algorithm="RS256", header={"kid": "P-256"}))) == (
        "its algorithm does not fit key P-256"
    )
    driver = settled(change=lambda server: setattr(server, "keys", [jwk("P-256"), jwk("P-384")]))
    for algorithm in ("RS256", "PS256", "ES384", "EdDSA"):
        reason = reason_of(driver.check(sign(algorithm=algorithm, header={"kid": "P-256"})))
        assert reason == "its algorithm does not fit key P-256"


def test_issuers_have_their_own_keys() -> None:
    """A token of one issuer that is signed with the key of another one is refused, also if it names that key."""
    other = "https://other.example"
    servers = IssuerServer(), IssuerServer(other)
    servers[1].keys = [jwk("RSA other", kid="RSA")]
    driver = Driver(issuers(IssuerSettings(ISSUER), IssuerSettings(other)), *servers)
    answers = [
        driver.check(sign(claims(iss=iss), key=key, header={"kid": "RSA"}))
        for iss in (ISSUER, other)
        for key in ("RSA", "RSA other")
    ]
    assert [isinstance(answer, Identity) for answer in answers] == [True, False, False, True]
    principals = [answer.principal for answer in answers if isinstance(answer, Identity)]
    assert principals == [f"jwt:{ISSUER}|alice", f"jwt:{other}|alice"]


def test_a_key_set_that_the_settings_name_needs_no_metadata() -> None:
    settings = IssuerSettings(ISSUER, jwks_url=f"{ISSUER}/keys")
    driver = settled(settings)
    assert isinstance(driver.check(sign()), Identity)
    assert driver.servers[ISSUER].count(MetadataWanted) == 0


def test_what_is_due_is_read_before_anybody_waits() -> None:
    driver = settled()
    for request in (*driver.checks.due(NOW), *driver.checks.due(NOW), *driver.checks.due(NOW)):
        driver.fetch(request)
    assert isinstance(driver.checks.check(sign(), AUDIENCES, NOW), Waits)  # the third one is that of the keys
    driver.check(sign())
    assert driver.checks.due(driver.now + 3539) == []
    assert len(driver.checks.due(driver.now + 3540)) == 1
    assert isinstance(driver.checks.check(sign(claims(jti="two")), AUDIENCES, driver.now + 3540), Identity)


def test_forms_of_tokens_are_told_apart() -> None:
    checks = issuers()
    assert checks.names(sign())
    assert checks.names("a.b.c.d.e")
    assert not checks.names("ist_0123456789")
    assert not Issuers([], verify=verify).names(sign())


@pytest.mark.parametrize(
    "settings",
    [
        (IssuerSettings(ISSUER), IssuerSettings(ISSUER)),
        (IssuerSettings("idp.example.com"),),
        (IssuerSettings(ISSUER + "?a=b"),),
        (IssuerSettings(ISSUER + "|a"),),
        (IssuerSettings(ISSUER, algorithms=("HS256",)),),
        (IssuerSettings(ISSUER, algorithms=("none",)),),
        (IssuerSettings(ISSUER, algorithms=()),),
        tuple(IssuerSettings(f"https://{at}.example", introspection=IntrospectionSettings("a", "b")) for at in "ab"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: tuple[IssuerSettings, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        issuers(*settings)


def test_a_clock_that_is_set_back_in_a_pause_ends_it() -> None:
    driver = settled()
    driver.check(sign())
    waits = driver.checks.check(sign(header={"kid": "k7"}), AUDIENCES, driver.now + 1)
    assert isinstance(waits, Waits)
    assert waits.request.not_before == NOW + 10
    again = driver.checks.check(sign(header={"kid": "k7"}), AUDIENCES, NOW - 3600)
    assert isinstance(again, Waits)
    assert again.request.not_before == 0
    assert again.request.url == waits.request.url
    driver.now = NOW - 3600
    assert isinstance(driver.check(sign(header={"kid": "k7"})), Refused)
    assert driver.now == NOW - 3600


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    driver = settled()
    driver.check(sign())
    driver.servers[ISSUER].keys = [jwk("RSA"), jwk("RSA new")]
    driver.now = NOW - 7200
    assert isinstance(driver.check(sign(key="RSA new")), Identity)
    assert driver.now == NOW - 7200
    driver.now -= 7200
    assert isinstance(
        driver.checks.check(sign(claims(jti="two")), AUDIENCES, driver.now), Waits
    )  # they are of tomorrow
