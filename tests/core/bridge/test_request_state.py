"""`requestState`: a minted token opens for its own request only, and digests are of values, not of bytes."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.errors import INVALID_PARAMS, LocalProtocolError, RemoteProtocolError
from isthmus.core.bridge.request_state import (
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

NOW = 1_800_000_000
SIGNER = RequestStateSigner([b"k" * 32])
PARAMS = b'{"name":"deploy","arguments":{"to":"staging","count":1},"_meta":{"try":1}}'
REQUEST: dict[str, Any] = {
    "now_unix": NOW + 1.5,
    "server": "ops",
    "principal": "alice",
    "method": "tools/call",
    "params": PARAMS,
}


def claims(signer: RequestStateSigner = SIGNER, **changed: Any) -> Claims:
    plain = Claims(
        kind=ClaimsKind.PARK,
        issued_at_unix=NOW,
        expires_at_unix=NOW + 600,
        owner="run-1",
        suspended_call="0123456789abcdef" * 2,
        round=2,
        server="ops",
        principal=signer.tag("alice"),
        method="tools/call",
        target=target_of("tools/call", PARAMS),
        digest=digest_of(PARAMS),
        questions={"r1": digest_of_value(b'{"method":"roots/list"}')},
    )
    return msgspec.structs.replace(plain, **changed)


def refusal(token: str, signer: RequestStateSigner = SIGNER, **changed: Any) -> Reason:
    with pytest.raises(InvalidRequestState) as caught:
        signer.open(token, **(REQUEST | changed))
    error = caught.value
    assert (error.message, error.rpc_code) == ("Invalid or expired requestState", INVALID_PARAMS)
    assert error.data == {"reason": "invalid_request_state"}
    return error.reason


# --- Tokens ---------------------------------------------------------------------------------------------------------

TOKEN = SIGNER.mint(claims())


@given(kind=st.sampled_from(ClaimsKind), round=st.integers(0, 99), call=st.text(max_size=40), keys=st.integers(0, 20))
def test_a_minted_token_opens(kind: ClaimsKind, round: int, call: str, keys: int) -> None:
    """The token opens for its own request, with all that was claimed."""
    original = claims(kind=kind, round=round, suspended_call=call, questions={f"r{n}": "d" * 43 for n in range(keys)})
    token = SIGNER.mint(original)
    assert is_ours(token)
    assert len(token) <= TOKEN_MAX
    assert SIGNER.open(token, **REQUEST) == original


@given(at=st.integers(0, len(TOKEN) - 1), bit=st.integers(0, 6))
def test_no_bit_can_be_flipped(at: int, bit: int) -> None:
    """Any bit flip is refused."""
    flipped = TOKEN[:at] + chr(ord(TOKEN[at]) ^ (1 << bit)) + TOKEN[at + 1 :]
    assert refusal(flipped) in (Reason.MALFORMED, Reason.FORGED, Reason.UNKNOWN_KEY)


@given(
    at=st.integers(0, len(TOKEN)),
    put=st.sampled_from(["", "A", "=", ".", "\n", " ", "é", "\ud800"]),
    drop=st.integers(0, 3),
)
def test_nothing_can_be_added_or_removed(at: int, put: str, drop: int) -> None:
    """No other text opens: each token has one spelling."""
    changed = TOKEN[:at] + put + TOKEN[at + drop :]
    if changed != TOKEN:
        assert refusal(changed) in (Reason.MALFORMED, Reason.FORGED, Reason.UNKNOWN_KEY)


@given(text=st.text(max_size=80))
def test_no_other_text_opens(text: str) -> None:
    assert refusal(text) is Reason.MALFORMED
    assert refusal("ist1." + text) is Reason.MALFORMED


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"principal": "bob"}, Reason.OTHER_PRINCIPAL),
        ({"principal": ""}, Reason.OTHER_PRINCIPAL),
        ({"principal": "Alice"}, Reason.OTHER_PRINCIPAL),
        ({"server": "dev"}, Reason.OTHER_SERVER),
        ({"method": "prompts/get"}, Reason.OTHER_REQUEST),
        ({"params": PARAMS.replace(b"deploy", b"Deploy")}, Reason.OTHER_REQUEST),
        ({"params": PARAMS.replace(b"staging", b"production")}, Reason.OTHER_REQUEST),
        ({"params": PARAMS.replace(b":1}", b":1.5}")}, Reason.OTHER_REQUEST),
        ({"params": b'{"name":"deploy"}'}, Reason.OTHER_REQUEST),
        ({"params": None}, Reason.OTHER_REQUEST),
        ({"now_unix": NOW + 600 + SKEW_S + 1}, Reason.EXPIRED),
        ({"now_unix": NOW - SKEW_S - 1}, Reason.NOT_YET),
    ],
    ids=lambda value: (
        value.value if isinstance(value, Reason) else "-".join(value) if isinstance(value, dict) else None
    ),
)
def test_a_token_is_for_one_request_of_one_principal(changed: dict[str, Any], reason: Reason) -> None:
    """Another principal, server, method, tool or arguments, or a time that has passed, are refused."""
    assert refusal(TOKEN, **changed) is reason


@pytest.mark.parametrize("now_unix", [NOW - SKEW_S, NOW, NOW + 600, NOW + 600 + SKEW_S])
def test_clocks_may_differ_a_little(now_unix: float) -> None:
    """Expiry is by wall time, with a minute to spare."""
    assert SIGNER.open(TOKEN, **(REQUEST | {"now_unix": now_unix})).suspended_call == claims().suspended_call


@pytest.mark.parametrize(
    "params",
    [
        b'{"arguments":{"count":1.0,"to":"staging"},"name":"deploy","requestState":"x","inputResponses":{"r1":{}}}',
        b'{ "name" : "d\\u0065ploy", "arguments" : { "to":"staging", "count":10e-1 } }',
        b'{"name":"deploy","arguments":{"count":7,"to":"staging","count":1}}',
    ],
    ids=["order-and-meta", "spelling", "last-of-two"],
)
def test_the_same_request_may_be_spelled_differently(params: bytes) -> None:
    """Re-ordered keys, 1 for 1.0, and members that differ from request to request do not change the digest."""
    assert SIGNER.open(TOKEN, **(REQUEST | {"params": params})) == claims()


def test_a_member_that_is_digested_is_there_once() -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        SIGNER.open(TOKEN, **(REQUEST | {"params": b'{"name":"deploy","name":"x","arguments":{}}'}))


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_the_first_key_signs_and_all_keys_verify() -> None:
    """A new key in front invalidates no token; a removed key invalidates all it signed."""
    old, new = b"o" * 16, b"n" * 16
    before, during, after = RequestStateSigner([old]), RequestStateSigner([new, old]), RequestStateSigner([new])
    token = before.mint(claims(before))
    assert during.open(token, **REQUEST) == claims(before)
    assert refusal(token, after) is Reason.UNKNOWN_KEY
    token = during.mint(claims(during))
    assert after.open(token, **REQUEST) == claims(during)
    assert refusal(token, before) is Reason.UNKNOWN_KEY


@pytest.mark.parametrize("keys", [[], [b"short"], [b"k" * 32, b"k" * 15]], ids=["none", "short", "second-short"])
def test_weak_keys_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(LocalProtocolError, match="key"):
        RequestStateSigner(keys)


@given(names=st.lists(st.text(max_size=20), min_size=2, max_size=2, unique=True))
def test_tags_tell_principals_apart_and_do_not_name_them(names: list[str]) -> None:
    one, other = names
    assert SIGNER.tag(one) == SIGNER.tag(one) != SIGNER.tag(other)
    assert len(SIGNER.tag(one)) == 22
    assert SIGNER.tag(one) != RequestStateSigner([b"q" * 16]).tag(one)


@pytest.mark.parametrize(
    "changed",
    [{"questions": {f"r{n}": "d" * 43 for n in range(90)}}, {"target": "\ud800"}],
    ids=["long", "half-a-pair"],
)
def test_oversize_claims_are_not_minted(changed: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        SIGNER.mint(claims(**changed))


# --- Targets and digests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "target"),
    [
        ("tools/call", b'{"name":"a","uri":"b"}', "a"),
        ("prompts/get", b'{"name":"a","uri":"b"}', "a"),
        ("resources/read", b'{"name":"a","uri":"b"}', "b"),
        ("tools/list", b'{"name":"a"}', ""),
        ("tools/call", b"[]", ""),
        ("tools/call", None, ""),
    ],
    ids=["tool", "prompt", "resource", "other", "array", "none"],
)
def test_the_target_of_a_request(method: str, params: bytes | None, target: str) -> None:
    assert target_of(method, params) == target


@given(name=st.text(st.characters(), max_size=2 * TARGET_MAX))
def test_every_target_fits_into_a_token(name: str) -> None:
    """Names that are too long, or hold half a surrogate pair, are told apart, too."""
    params = b'{"name":%b}' % json.dumps(name).encode()
    token = SIGNER.mint(claims(target=target_of("tools/call", params), digest=digest_of(params)))
    assert SIGNER.open(token, **(REQUEST | {"params": params})).method == "tools/call"
    other = b'{"name":%b}' % json.dumps(name + "x").encode()
    assert refusal(token, params=other) is Reason.OTHER_REQUEST


Value = Any
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(st.characters(), max_size=4))
FRACTIONS = st.builds(lambda a, b: Fraction(a, 10**b), st.integers(-200, 200), st.integers(0, 3))
KEYS = st.text(st.characters(codec="utf-8") | st.sampled_from(".\0\ud800"), max_size=2)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS | FRACTIONS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


def written(value: Value, chance: random.Random) -> str:
    """Writes `value` as JSON in one of many spellings."""
    if isinstance(value, dict):
        pairs = [(key, written(one, chance)) for key, one in value.items()]
        chance.shuffle(pairs)
        if pairs and chance.random() < 0.3:  # an earlier one that does not count
            pairs.insert(0, (chance.choice(pairs)[0], '{"lost":[1]}'))
        return "{" + ",".join(f"{json.dumps(key)} : {one}" for key, one in pairs) + "}"
    if isinstance(value, list):
        return "[ " + " ,".join(written(one, chance) for one in value) + "]"
    if isinstance(value, str):
        units = units_of(value)
        return '"' + "".join(f"\\u{unit:04x}" for unit in units) + '"' if chance.random() < 0.5 else json.dumps(value)
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        shift = chance.randrange(4)
        scaled = value * 10**3 * 10**shift
        assert scaled == int(scaled)
        plain = f"{int(scaled)}{chance.choice(['', '.0', '.000'])}{chance.choice('eE')}-{3 + shift}"
        return chance.choice([plain, plain, str(value)]) if isinstance(value, int) else plain
    return json.dumps(value)


@given(value=VALUES, seed=st.integers(0, 99))
def test_a_digest_is_of_the_value(value: Value, seed: int) -> None:
    """Equal values have equal digests however they are written: order, spelling, escapes, doubles."""
    one, other = random.Random(seed), random.Random(seed + 1000)
    assert digest_of_value(written(value, one).encode()) == digest_of_value(written(value, other).encode())


def units_of(text: str) -> list[int]:
    """Returns the UTF-16 code units, which are what JSON escapes."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return [encoded[at] + 256 * encoded[at + 1] for at in range(0, len(encoded), 2)]


def strict(value: Value) -> Value:
    """Returns `value` with its types, which Python's equality ignores: True is not 1."""
    if isinstance(value, dict):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, list):
        return [strict(one) for one in value]
    if isinstance(value, str):
        return ("text", units_of(value))
    return ("bool", value) if isinstance(value, bool) else ("", value)


@given(one=VALUES, other=VALUES)
def test_digests_tell_values_apart(one: Value, other: Value) -> None:
    fixed = random.Random(1)
    first, second = digest_of_value(written(one, fixed).encode()), digest_of_value(written(other, fixed).encode())
    assert (first == second) == (strict(one) == strict(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b'"1"'),
        (b"1", b"true"),
        (b"0", b"null"),
        (b"[]", b"{}"),
        (b"[1,2]", b"[2,1]"),
        (b"9007199254740993", b"9007199254740992"),
        (b"0.1", b"0.1000000000000000055511151231257827"),
        (b"1e400", b"1e401"),
        (b"1", b'{"":"1e0"}'),
        (b'{"":"1e0"}', b'{".":"1e0"}'),
        (b'"\\ud800"', b'"\\ud801"'),
        (b'"\\ud800"', b'"\\ufffd"'),
        (b'{"a":null}', b"{}"),
    ],
    ids=lambda raw: raw.decode(),
)
def test_similar_values_differ(one: bytes, other: bytes) -> None:
    """Values that a careless reader takes for equal have different digests."""
    assert digest_of_value(one) != digest_of_value(other)


@pytest.mark.parametrize("raw", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"1 2"], ids=repr)
def test_only_json_has_a_digest(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        digest_of_value(raw)


@pytest.mark.parametrize("depth", [256, 100_000])
def test_depth_is_read_or_refused(depth: int) -> None:
    raw = b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2)
    if depth <= 256:
        assert len(digest_of_value(raw)) == 43
    else:
        with pytest.raises(RemoteProtocolError, match="deep"):
            digest_of_value(raw)


# --- Other releases ---------------------------------------------------------------------------------------------------


class Later(Claims, frozen=True, kw_only=True):
    """Claims of a later release, signed under the same key."""

    more: str = msgspec.field(name="z", default="")
    suspended_call: int = msgspec.field(name="a")  # type: ignore[assignment]


@pytest.mark.parametrize(
    "changed", [{"suspended_call": 7}, {"suspended_call": "p", "more": "m"}], ids=["of another type", "unknown"]
)
def test_claims_of_another_release_are_refused(changed: dict[str, Any]) -> None:
    """The signature is valid, but the claims cannot be read."""
    original = {name: getattr(claims(), name) for name in Claims.__struct_fields__}
    assert refusal(SIGNER.mint(Later(**{**original, **changed}))) is Reason.MALFORMED
    assert SIGNER.open(SIGNER.mint(Later(**original)), **REQUEST) == claims()
