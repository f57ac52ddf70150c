"""The format of a `requestState`, to the byte: a token of an earlier release opens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import msgspec
import pytest
from isthmus.core.base.errors import INVALID_PARAMS, PARSE_ERROR, LocalProtocolError, RemoteProtocolError
from isthmus.core.bridge.request_state import (
    KEY_MIN_BYTES,
    SKEW_S,
    TARGET_MAX,
    TOKEN_MAX,
    Claims,
    ClaimsKind,
    InvalidRequestState,
    Reason,
    RequestStateSigner,
    digest_of,
    digest_of_value,
    is_ours,
    target_of,
)

KEY = b"0123456789abcdef"
NOW = 1_800_000_000
PARAMS = b'{"name":"deploy","arguments":{"n":1.50}}'
GIVEN = (
    "ist1.eyJrIjoicGFyayIsImkiOjE4MDAwMDAwMDAsImUiOjE4MDAwMDA2MDAsIm8iOiJydW4iLCJhIjoicCIsInMiOiJvcHMiLCJwIjoiSzdTS0Js"
    "bVM4cWV1LWNQaWNHME5MUSIsIm0iOiJ0b29scy9jYWxsIiwidCI6ImRlcGxveSIsImQiOiJBNzJtQ1I0WUdZNjdKYk5RSkU2eENtM3A5bFpaSS1KeW"
    "lPRFdQdnk4TTFnIiwiciI6MiwicSI6eyJyMSI6InEifX0.Sr8gV-qk5m6Z5ukpdfFV2wjbiFxlf9B-EZR_Fu2Ux5wLL3oU"
)


def claims(**changed: Any) -> Claims:
    given: dict[str, Any] = {
        "kind": ClaimsKind.PARK,
        "issued_at_unix": NOW,
        "expires_at_unix": NOW + 600,
        "owner": "run",
        "suspended_call": "p",
        "server": "ops",
        "principal": RequestStateSigner([KEY]).tag("alice"),
        "method": "tools/call",
        "target": "deploy",
        "digest": digest_of(PARAMS),
        "round": 2,
        "questions": {"r1": "q"},
    }
    return Claims(**(given | changed))


def opened(token: str, *, now_unix: float = NOW, params: bytes = PARAMS) -> Claims:
    request: dict[str, Any] = {"server": "ops", "principal": "alice", "method": "tools/call", "params": params}
    return RequestStateSigner([KEY]).open(token, now_unix=now_unix, **request)


def reason(token: str, **rest: Any) -> Reason:
    with pytest.raises(InvalidRequestState) as caught:
        opened(token, **rest)
    assert caught.value.data == {"reason": "invalid_request_state"}
    assert (caught.value.message, caught.value.rpc_code) == ("Invalid or expired requestState", INVALID_PARAMS)
    return caught.value.reason


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def derived(purpose: str, data: bytes, key: bytes = KEY) -> bytes:
    secret = hmac.digest(key, b"isthmus requestState 1: " + purpose.encode(), "sha256")
    return hmac.digest(secret, data, "sha256") if data else secret


def signed_token(given: object) -> str:
    """Returns any text under a valid signature."""
    signed = "ist1." + encoded(given if isinstance(given, bytes) else json.dumps(given, separators=(",", ":")).encode())
    return f"{signed}.{encoded(derived('id', b'')[:4] + derived('signing', signed.encode()))}"


def test_a_token_of_an_earlier_release_opens() -> None:
    assert RequestStateSigner([KEY]).mint(claims()) == GIVEN
    assert opened(GIVEN) == claims()


@pytest.mark.parametrize(("kind", "word"), [*zip(ClaimsKind, ["park", "url", "defer", "replay"], strict=True)])
def test_the_members_of_a_token(kind: ClaimsKind, word: str) -> None:
    """A token has short names and no default members; it is signed as a whole, after the first bytes of the key's
    name."""
    bare = Claims(
        kind=kind,
        issued_at_unix=1,
        expires_at_unix=2,
        owner="o",
        suspended_call="a",
        server="s",
        principal="p",
        method="m",
    )
    given = {"k": word, "i": 1, "e": 2, "o": "o", "a": "a", "s": "s", "p": "p", "m": "m"}
    assert RequestStateSigner([KEY]).mint(bare) == signed_token(given)
    full = claims(kind=kind)
    more = {"t": "deploy", "d": full.digest, "r": 2, "q": {"r1": "q"}}
    given = {"k": word, "i": NOW, "e": NOW + 600, "o": "run", "a": "p", "s": "ops", "p": full.principal}
    assert RequestStateSigner([KEY]).mint(full) == signed_token({**given, "m": "tools/call", **more})


@pytest.mark.parametrize("principal", ["", "alice", "é", "\ud800"])
def test_a_tag_is_half_a_keyed_digest(principal: str) -> None:
    tag = hmac.digest(derived("tagging", b""), principal.encode(errors="surrogatepass"), "sha256")[:16]
    assert RequestStateSigner([KEY]).tag(principal) == encoded(tag)


def test_the_log_has_a_word_for_each_reason() -> None:
    assert [each.value for each in Reason] == [
        "malformed", "unknown_key", "forged", "not_yet", "expired", "other_server", "other_principal", "other_request",
    ]  # fmt: skip


@pytest.mark.parametrize("off", [0, 1])
def test_a_token_has_a_longest_size(off: int) -> None:
    """The bound itself is accepted, both in minting and in opening."""
    assert TOKEN_MAX == 4096, "as clients keep them"
    bare_bytes = len(base64.urlsafe_b64decode(GIVEN.split(".")[1] + "==")) - 1

    def length(call: int) -> int:
        return len("ist1.") + -(-(bare_bytes + call) * 4 // 3) + len(".") + 48

    given = claims(suspended_call="x" * next(n for n in range(TOKEN_MAX) if length(n) == TOKEN_MAX + off))
    if not off:
        token = RequestStateSigner([KEY]).mint(given)
        assert len(token) == TOKEN_MAX
        assert opened(token) == given
    else:
        with pytest.raises(LocalProtocolError, match="of 4097 characters, expected 4096 at most"):
            RequestStateSigner([KEY]).mint(given)


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_name_stands_in_a_token_up_to_a_length(off: int, method: str) -> None:
    """A longer name is replaced by a digest that begins as no name does."""
    assert TARGET_MAX == 256, "as in tokens that were given before"
    name = "é" * (TARGET_MAX + off)
    raw = json.dumps(name).encode()
    assert target_of(method, b'{"name":%b}' % raw) == (name if not off else "\0" + digest_of_value(raw))


@pytest.mark.parametrize(
    ("at", "is_open"),
    [
        (NOW - SKEW_S - 0.1, False),
        (NOW - SKEW_S, True),
        (NOW + 600 + SKEW_S, True),
        (NOW + 600 + SKEW_S + 0.1, False),
    ],
)
def test_a_token_is_good_for_its_time_and_a_minute_on_both_sides(at: float, is_open: bool) -> None:
    assert SKEW_S == 60
    if is_open:
        assert opened(GIVEN, now_unix=at) == claims()
    else:
        assert reason(GIVEN, now_unix=at) is (Reason.NOT_YET if at < NOW else Reason.EXPIRED)


@pytest.mark.parametrize("given", [b"", b"{", b"{}", b"[]", b"\xff", {"k": "other"}])
def test_a_signed_token_without_claims_is_malformed(given: object) -> None:
    assert reason(signed_token(given)) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GIVEN.replace("ist1.", "ist2."), Reason.MALFORMED),
        (GIVEN + "A", Reason.MALFORMED),
        (GIVEN[:-1], Reason.MALFORMED),
        (GIVEN[:-1] + "A", Reason.FORGED),
        (GIVEN[:5] + "f" + GIVEN[6:], Reason.FORGED),
        (GIVEN.replace(".Sr8gV", ".Sr8gW"), Reason.UNKNOWN_KEY),
        (GIVEN.replace(".Sr8g", ".Ar8g"), Reason.UNKNOWN_KEY),
    ],
)
def test_the_reason_of_a_refused_token(text: str, expected: Reason) -> None:
    assert reason(text) is expected


@pytest.mark.parametrize(("text", "ours"), [("ist1.", True), ("ist1.x", True), ("ist1", False), ("ist2.x", False)])
def test_our_tokens_begin_alike(text: str, ours: bool) -> None:
    assert is_ours(text) is ours


@pytest.mark.parametrize("keys", [[], [b"x" * (KEY_MIN_BYTES - 1)], [KEY, b""]])
def test_a_key_has_a_least_size(keys: list[bytes]) -> None:
    assert KEY_MIN_BYTES == 16
    with pytest.raises(LocalProtocolError, match="expected 16 bytes" if keys else "expected at least one"):
        RequestStateSigner(keys)
    assert RequestStateSigner([b"x" * 16]).tag("a")


# --- Digests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"b":true,"a":"x"}', '{".a":"x",".b":true}'),
        (b'[ true,null , "\\u00e9" ]', '[true,null,"\\u00e9"]'),
        (b'{"":{}}', '{".":{}}'),
        (b'""', '""'),
    ],
)
def test_a_digest_is_of_one_spelling(raw: bytes, text: str) -> None:
    assert digest_of_value(raw) == encoded(hashlib.sha256(text.encode()).digest())


def test_a_digest_of_numbers() -> None:
    """The digest is that of earlier releases."""
    raw = b'{"a":[1.50,-0,1e400,"x",null,true],"b":{}}'
    assert digest_of_value(raw) == "Qt6uwJQODEg0sicBnDxk2VVwCfLUPGnAMoSyjg6092s"


@pytest.mark.parametrize(
    ("params", "value"),
    [
        (None, b"{}"),
        (b"{}", b"{}"),
        (b'{"name":"t","_meta":{},"inputResponses":{},"requestState":"x"}', b"{}"),
        (b'{"uri":"a:b","arguments":{"n":1}}', b'{"arguments":{"n":1},"uri":"a:b"}'),
        (b'{"uri":"a:b"}', b'{"uri":"a:b"}'),
    ],
)
def test_the_members_of_a_request_that_are_digested(params: bytes | None, value: bytes) -> None:
    assert digest_of(params) == digest_of_value(value)


@pytest.mark.parametrize(("raw", "code"), [(b"{", PARSE_ERROR), (b"NaN", PARSE_ERROR), (b"[" * 10**5, INVALID_PARAMS)])
def test_params_without_a_digest(raw: bytes, code: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        digest_of_value(raw)
    assert caught.value.rpc_code == code


def test_claims_that_are_left_out_are_empty() -> None:
    """A request without a target, arguments or an earlier round has empty claims."""
    given: dict[str, Any] = {"target": "", "digest": "", "round": 0, "questions": {}}
    bare = {key: value for key, value in msgspec.structs.asdict(claims()).items() if key not in given}
    assert Claims(**bare) == Claims(**bare, **given)
    assert RequestStateSigner([KEY]).mint(Claims(**bare)) == RequestStateSigner([KEY]).mint(Claims(**bare, **given))
