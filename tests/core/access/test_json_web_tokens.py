"""Tokens of random content and text, with PyJWT as the judge: a token that it refuses is refused, and one that it
accepts is accepted unless a rule refuses it that PyJWT does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any
from unittest import mock

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from issuer_scenes import (
    AUDIENCES,
    ENDPOINT,
    ISSUER,
    KINDS,
    NOW,
    Driver,
    base64url,
    claims,
    jwk,
    private_key,
    reason_of,
    settled,
    sign,
)
from isthmus.core.access.identity import Identity
from isthmus.core.access.issuer_answers import Refused, Waits
from isthmus.core.access.json_web_tokens import (
    HEADER_MAX_BYTES,
    NAME_MAX_CHARS,
    SHOWN_MAX_CHARS,
    TOKEN_MAX_CHARS,
    JsonWebToken,
    issuer_of,
    read_token,
    shown,
)

PUBLISHED = ("RSA", "RSA two", "P-256", "P-384", "P-521", "Ed25519")
FORMS = [form for audience in AUDIENCES for form in (audience, audience + "/")]
MISSING = object()


class Frozen(datetime):
    """The class whose clock PyJWT asks."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Frozen:
        return cls.fromtimestamp(NOW, tz)


@pytest.fixture(autouse=True, scope="module")
def frozen() -> Iterator[None]:
    with mock.patch("jwt.api_jwt.datetime", Frozen):
        assert jwt.api_jwt.datetime.now(tz=UTC).timestamp() == NOW
        yield


def accepted_by_pyjwt(token: str) -> dict[str, Any] | None:
    """Returns the claims of a token that PyJWT accepts, with strict options, of one of the published keys."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        return None
    for name in PUBLISHED if kid is None else (kid,):
        if name not in PUBLISHED:
            continue
        try:
            return jwt.decode(
                token,
                private_key(name).public_key(),
                algorithms=list(KINDS),
                audience=FORMS,
                issuer=ISSUER,
                leeway=30,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_iat": False},
            )
        except (jwt.PyJWTError, TypeError, ValueError):
            continue
    return None


def published() -> Driver:
    return settled(change=lambda server: setattr(server, "keys", [jwk(name) for name in PUBLISHED]))


DRIVER = published()
DRIVER.check(sign())


def check(token: str) -> Identity | Refused:
    """Checks a token at a fixed time. What was remembered of it is that of the same token."""
    DRIVER.now = NOW
    answer = DRIVER.checks.check(token, AUDIENCES, NOW)
    if isinstance(answer, Waits):  # for a key that is unknown: there is none but those that were read
        return Refused("")
    return answer if isinstance(answer, Identity | Refused) else Refused("")


def optional(good: st.SearchStrategy[Any], *others: object) -> st.SearchStrategy[Any]:
    """Mostly a good value, else one of the others, or anything."""
    anything = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.text(max_size=3)))
    return st.one_of(good, good, good, good, st.sampled_from([MISSING, *others]), anything)


SECONDS = st.integers(-100, 100).map(lambda delta: int(NOW) + delta)
CLAIMS = st.fixed_dictionaries(
    {
        "iss": optional(st.just(ISSUER), ISSUER + "/", [ISSUER]),
        "aud": optional(st.sampled_from([*FORMS, [ENDPOINT], ["x", ENDPOINT], []]), "x", [ENDPOINT, 7], {ENDPOINT: 1}),
        "exp": optional(SECONDS, NOW + 0.5, str(int(NOW) + 99), 1e300, -(10**30)),
        "sub": optional(st.sampled_from(["alice", "a|b", "ä"]), "a\nb", "x" * 257),
    },
    optional={
        "nbf": optional(SECONDS, NOW + 30.5, "soon"),
        "iat": optional(SECONDS, "then"),
        "jti": optional(st.text(max_size=5)),
        "scope": optional(st.just("a b")),
        "scp": optional(st.just(["a"])),
        "at_hash": st.just("x"),
    },
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "typ": optional(
            st.sampled_from(["at+jwt", "JWT", "application/at+jwt", "AT+JWT"]), "oauth-id-jag+jwt", "dpop+jwt"
        ),
        "alg": optional(st.sampled_from(list(KINDS)), "none", "HS256", "ES256K"),
        "kid": optional(st.sampled_from(PUBLISHED), "unknown"),
        "crit": optional(st.just(["exp"]), [], ["b64"]),
        "b64": st.booleans(),
        "jwk": st.just({"kty": "oct", "k": "AAAA"}),
        "jku": st.just("https://evil.example"),
        "x5c": st.just(["AAAA"]),
    },
)
SIGNERS = st.sampled_from(
    [(name, kind) for name, kind in KINDS.items()] * 3 + [("RS256", "RSA two"), ("RS256", "RSA other")]
)


def only_ours(header: dict[str, Any], content: dict[str, Any]) -> bool:
    """True if a token breaks a rule that PyJWT does not have."""
    times = [content[name] for name in ("exp", "nbf") if name in content]
    texts = [content[name] for name in ("scope", "scp") if name in content][:1]
    name = content["sub"]
    return (
        ("typ" in header and str(header["typ"]).lower() not in ("at+jwt", "application/at+jwt", "jwt"))
        or "crit" in header
        or "b64" in header
        or "at_hash" in content
        or any(isinstance(moment, bool | str) for moment in times)
        or not 1 <= len(name) <= NAME_MAX_CHARS
        or not name.isprintable()
        or not all(isinstance(text, str | list) for text in texts)
        or any(isinstance(text, list) and not all(isinstance(each, str) for each in text) for text in texts)
    )


@settings(max_examples=200, deadline=None)
@given(content=CLAIMS, header=HEADERS, signer=SIGNERS)
def test_content_is_judged_as_pyjwt_does(
    content: dict[str, Any], header: dict[str, Any], signer: tuple[str, str]
) -> None:
    content = {name: value for name, value in content.items() if value is not MISSING}
    named = {"kid": signer[1]} | header
    token = sign(
        content, algorithm=signer[0], key=signer[1], header={k: None if v is MISSING else v for k, v in named.items()}
    )
    written = json.loads(jwt.utils.base64url_decode(token.partition(".")[0]))
    expected = accepted_by_pyjwt(token)
    answer = check(token)
    if expected is None:
        assert isinstance(answer, Refused)
    else:
        assert isinstance(answer, Identity) is not only_ours(written, expected)
    if isinstance(answer, Identity):
        assert answer.principal == f"jwt:{ISSUER}|{content['sub']}"
        assert answer.expires_at is not None
        assert answer.expires_at > NOW


SEEDS = [sign(algorithm=name) for name in KINDS] + [sign(header={"kid": None}), sign(header={"typ": None})]
CHARACTERS = st.sampled_from("AZaz09-_+/=. \n\0é")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draws a token whose text was changed."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.sampled_from(["put", "take", "change", "cut", "swap", "end"]))
        if kind == "put":
            text = text[:at] + draw(CHARACTERS) + text[at:]
        elif kind == "take":
            text = text[:at] + text[at + 1 :]
        elif kind == "change":
            text = text[:at] + draw(CHARACTERS) + text[at + 1 :]
        elif kind == "cut":
            text = text[:at]
        elif kind == "end":
            text += draw(CHARACTERS)
        else:
            other = draw(st.sampled_from(SEEDS)).split(".")
            parts = text.split(".")
            index = draw(st.integers(0, 2))
            text = ".".join([*parts[:index], other[index], *parts[index + 1 :]])
    return text


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(texts(), st.text(max_size=40), st.text("ey.J0-_", max_size=20)))
def test_a_text_that_pyjwt_refuses_is_refused(text: str) -> None:
    if isinstance(check(text), Identity):
        assert accepted_by_pyjwt(text) is not None


@given(text=st.one_of(texts(), st.text(max_size=40)))
def test_reading_believes_nothing(text: str) -> None:
    """A text is read as a token or refused, and its issuer is found whatever else is wrong with it."""
    token = read_token(text)
    if isinstance(token, JsonWebToken):
        assert issuer_of(text) == token.issuer
        assert text.startswith(token.message.decode())
        assert text not in repr(token)
    else:
        assert token.reason.isprintable()


def test_a_token_is_bounded() -> None:
    fits, longer = (read_token("a" * (length - 4) + ".b.c") for length in (TOKEN_MAX_CHARS, TOKEN_MAX_CHARS + 1))
    assert (
        reason_of(longer if isinstance(longer, Refused) else fits) == "it has 16385 characters, expected 16384 at most"
    )  # type: ignore[arg-type]
    assert isinstance(fits, Refused)
    assert "characters" not in fits.reason
    claim = "x" * 10_000
    assert isinstance(read_token(sign(claims(note=claim))), JsonWebToken)
    assert isinstance(read_token(sign(claims(note=claim * 2))), Refused)


def test_a_header_is_bounded() -> None:
    room = HEADER_MAX_BYTES - len('{"alg": "RS256", "typ": "at+jwt", "kid": "RSA", "x": ""}')
    assert isinstance(read_token(sign(header={"x": "x" * room})), JsonWebToken)
    assert read_token(sign(header={"x": "x" * (room + 3)})) == Refused("its header has more than 4096 bytes")


def test_the_name_of_a_key_is_bounded() -> None:
    assert isinstance(read_token(sign(header={"kid": "k" * NAME_MAX_CHARS})), JsonWebToken)
    assert isinstance(read_token(sign(header={"kid": "k" * (NAME_MAX_CHARS + 1)})), Refused)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[" * 3000, "its content is nested too deeply"),
        (b"{", "its content is no JSON"),
        (b'{"iss":"\xff"}', "its content is no JSON"),
        (b'{"iss":"\\ud800"}', "its content is no JSON"),
        (b'{"iss":NaN}', "its content is no JSON"),
        (b"\xef\xbb\xbf{}", "its content is no JSON"),
        (b"[]", "its content is no JSON object"),
        (b'"iss"', "its content is no JSON object"),
        (b"{}", "it names no issuer (iss)"),
        (b'{"iss":null}', "it names no issuer (iss)"),
    ],
)
def test_content_that_cannot_be_read_is_refused(payload: bytes, reason: str) -> None:
    assert read_token(sign(payload)) == Refused(reason)
    assert issuer_of(sign(payload)) is None


def test_of_a_claim_that_occurs_twice_the_last_one_counts() -> None:
    """RFC 7519, 4: "or use a JSON parser that returns only the lexically last duplicate member name"."""
    written = json.dumps(claims()).encode()
    for first, accepted in (("bob", True), ("", True)):
        answer = check(sign(b'{"sub":' + json.dumps(first).encode() + b"," + written[1:]))
        assert isinstance(answer, Identity) is accepted
        assert answer.principal == f"jwt:{ISSUER}|alice"  # type: ignore[union-attr]
    assert isinstance(check(sign(written[:-1] + b',"aud":"https://other.example"}')), Refused)


def test_a_reason_shows_kid_iss_and_aud_only() -> None:
    """The rest of a token is seen in no refusal."""
    secret = "the-secret-of-the-token"
    usual = claims(sub=secret, jti=secret, client_id=secret, scope=secret, groups=[secret], email=secret)
    refused = [
        check(sign(usual | change, header={"x": secret, **header}))
        for change, header in (
            ({"aud": "https://other.example"}, {}),
            ({"exp": 1}, {}),
            ({"nbf": NOW * 2}, {}),
            ({"iss": "https://other.example"}, {}),
            ({"sub": secret + "\n"}, {}),
            ({"sub": [secret]}, {}),
            ({"scope": {secret: secret}}, {}),
            ({"exp": secret}, {}),
            ({"aud": None}, {}),
            ({}, {"typ": secret}),
            ({}, {"alg": secret}),
            ({}, {"kid": [secret]}),
            ({}, {"crit": [secret]}),
            ({}, {"kid": "P-256"}),
        )
    ]
    for answer in refused:
        assert isinstance(answer, Refused)
        assert secret not in answer.reason
        assert answer.reason
        assert answer.reason.isascii()


@given(text=st.text())
def test_a_shown_text_is_short_and_printable(text: str) -> None:
    seen = shown(text)
    assert seen.isascii()
    assert not seen or seen.isprintable()
    assert len(seen) <= SHOWN_MAX_CHARS + 3
    if seen.endswith("...") and not text.endswith("..."):
        assert len(text.encode("unicode_escape")) > SHOWN_MAX_CHARS
    if text.isascii() and text.isprintable() and "\\" not in text and len(text) <= SHOWN_MAX_CHARS:
        assert seen == text


@pytest.mark.parametrize(("size", "count"), [(27, 64), (28, 4), (29, 16)])
def test_a_token_has_one_text(size: int, count: int) -> None:
    """The last character of a part may have bits that no byte needs: a text in which they are set is no token."""
    start = sign().rpartition(".")[0]
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    tail = base64url(bytes(size))
    read = [read_token(f"{start}.{tail[:-1].decode()}{digit}") for digit in digits]
    assert sum(isinstance(token, JsonWebToken) for token in read) == count


def test_a_half_byte_is_no_byte() -> None:
    header = base64url(b'{"alg":"RS256"}').decode()
    for text in (f"{header}.a.aa", f"{header}.{base64url(b'{}').decode()}aaa.aa", f"a.{header}.aa"):
        assert isinstance(read_token(text), Refused)
