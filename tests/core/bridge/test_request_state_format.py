"""What a `requestState` is, to the letter: one that was given by an earlier release opens."""

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
    Kind,
    Reason,
    Seal,
    Unsealed,
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
    said: dict[str, Any] = {
        "kind": Kind.PARK,
        "issued_at_unix": NOW,
        "expires_at_unix": NOW + 600,
        "owner": "run",
        "park": "p",
        "server": "ops",
        "principal": Seal([KEY]).tag("alice"),
        "method": "tools/call",
        "target": "deploy",
        "digest": digest_of(PARAMS),
        "round": 2,
        "questions": {"r1": "q"},
    }
    return Claims(**(said | changed))


def opened(token: str, *, now_unix: float = NOW, params: bytes = PARAMS) -> Claims:
    request: dict[str, Any] = {"server": "ops", "principal": "alice", "method": "tools/call", "params": params}
    return Seal([KEY]).open(token, now_unix=now_unix, **request)


def reason(token: str, **rest: Any) -> Reason:
    with pytest.raises(Unsealed) as caught:
        opened(token, **rest)
    assert caught.value.data == {"reason": "invalid_request_state"}
    assert (caught.value.message, caught.value.rpc_code) == ("Invalid or expired requestState", INVALID_PARAMS)
    return caught.value.reason


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def derived(purpose: str, data: bytes, key: bytes = KEY) -> bytes:
    secret = hmac.digest(key, b"isthmus requestState 1: " + purpose.encode(), "sha256")
    return hmac.digest(secret, data, "sha256") if data else secret


def sealed(said: object) -> str:
    """Any text under a good signature."""
    signed = "ist1." + encoded(said if isinstance(said, bytes) else json.dumps(said, separators=(",", ":")).encode())
    return f"{signed}.{encoded(derived('id', b'')[:4] + derived('signing', signed.encode()))}"


def test_a_token_that_was_given_before_opens() -> None:
    assert Seal([KEY]).mint(claims()) == GIVEN
    assert opened(GIVEN) == claims()


@pytest.mark.parametrize(("kind", "word"), [*zip(Kind, ["park", "url", "defer", "replay"], strict=True)])
def test_what_a_token_says_and_how(kind: Kind, word: str) -> None:
    """Short names, and nothing of what is not claimed; signed as a whole, with the first bytes of the key's name."""
    bare = Claims(
        kind=kind, issued_at_unix=1, expires_at_unix=2, owner="o", park="a", server="s", principal="p", method="m"
    )
    said = {"k": word, "i": 1, "e": 2, "o": "o", "a": "a", "s": "s", "p": "p", "m": "m"}
    assert Seal([KEY]).mint(bare) == sealed(said)
    full = claims(kind=kind)
    more = {"t": "deploy", "d": full.digest, "r": 2, "q": {"r1": "q"}}
    said = {"k": word, "i": NOW, "e": NOW + 600, "o": "run", "a": "p", "s": "ops", "p": full.principal}
    assert Seal([KEY]).mint(full) == sealed({**said, "m": "tools/call", **more})


@pytest.mark.parametrize("principal", ["", "alice", "é", "\ud800"])
def test_a_tag_is_half_a_keyed_digest(principal: str) -> None:
    tag = hmac.digest(derived("tagging", b""), principal.encode(errors="surrogatepass"), "sha256")[:16]
    assert Seal([KEY]).tag(principal) == encoded(tag)


def test_the_log_has_a_word_for_each_reason() -> None:
    assert [each.value for each in Reason] == [
        "malformed", "unknown_key", "forged", "not_yet", "expired", "other_server", "other_principal", "other_request",
    ]  # fmt: skip


@pytest.mark.parametrize("off", [0, 1])
def test_a_token_has_so_many_characters_at_most(off: int) -> None:
    """The bound itself is within, both where it is minted and where it is opened."""
    assert TOKEN_MAX == 4096, "as clients keep them"
    bare_bytes = len(base64.urlsafe_b64decode(GIVEN.split(".")[1] + "==")) - 1

    def length(park: int) -> int:
        return len("ist1.") + -(-(bare_bytes + park) * 4 // 3) + len(".") + 48

    said = claims(park="x" * next(n for n in range(TOKEN_MAX) if length(n) == TOKEN_MAX + off))
    if not off:
        token = Seal([KEY]).mint(said)
        assert len(token) == TOKEN_MAX
        assert opened(token) == said
    else:
        with pytest.raises(LocalProtocolError, match="of 4097 characters, expected 4096 at most"):
            Seal([KEY]).mint(said)


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_name_stands_in_a_token_up_to_a_length(off: int, method: str) -> None:
    """Of a longer one, a digest that begins as no name does."""
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


@pytest.mark.parametrize("said", [b"", b"{", b"{}", b"[]", b"\xff", {"k": "other"}])
def test_what_is_signed_and_says_nothing_is_malformed(said: object) -> None:
    assert reason(sealed(said)) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("text", "why"),
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
def test_why_a_token_is_refused(text: str, why: Reason) -> None:
    assert reason(text) is why


@pytest.mark.parametrize(("text", "ours"), [("ist1.", True), ("ist1.x", True), ("ist1", False), ("ist2.x", False)])
def test_ours_begin_alike(text: str, ours: bool) -> None:
    assert is_ours(text) is ours


@pytest.mark.parametrize("keys", [[], [b"x" * (KEY_MIN_BYTES - 1)], [KEY, b""]])
def test_a_key_has_so_many_bytes(keys: list[bytes]) -> None:
    assert KEY_MIN_BYTES == 16
    with pytest.raises(LocalProtocolError, match="expected 16 bytes" if keys else "expected at least one"):
        Seal(keys)
    assert Seal([b"x" * 16]).tag("a")


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
    """As it was given before."""
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
def test_what_of_a_request_counts(params: bytes | None, value: bytes) -> None:
    assert digest_of(params) == digest_of_value(value)


@pytest.mark.parametrize(("raw", "code"), [(b"{", PARSE_ERROR), (b"NaN", PARSE_ERROR), (b"[" * 10**5, INVALID_PARAMS)])
def test_what_has_no_digest(raw: bytes, code: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        digest_of_value(raw)
    assert caught.value.rpc_code == code


def test_what_is_not_said_is_nothing() -> None:
    """A request without a target, arguments or an earlier round is claimed as one."""
    said: dict[str, Any] = {"target": "", "digest": "", "round": 0, "questions": {}}
    bare = {key: value for key, value in msgspec.structs.asdict(claims()).items() if key not in said}
    assert Claims(**bare) == Claims(**bare, **said)
    assert Seal([KEY]).mint(Claims(**bare)) == Seal([KEY]).mint(Claims(**bare, **said))
