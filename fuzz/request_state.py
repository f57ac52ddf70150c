"""Whatever text comes as `requestState`, and whatever request with it, only what was minted for that request opens.

The first two bytes are where a good token is changed, the third how; the rest is a token of its own, a zero byte, and
the params of the request. Accepted outcomes: `Unsealed`, with one message for every reason; `RemoteProtocolError` where
the params cannot be read; the very claims, where token and request are the good ones.
"""

from __future__ import annotations

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.bridge.request_state import Claims, Kind, Seal, Unsealed, digest_of, is_ours, target_of

SEAL = Seal([b"the key of this target"])
PARAMS = b'{"name":"deploy","arguments":{"to":"staging"}}'
CLAIMS = Claims(
    kind=Kind.PARK,
    issued_at_unix=1000,
    expires_at_unix=2000,
    owner="a",
    park="b",
    server="ops",
    principal=SEAL.tag("alice"),
    method="tools/call",
    target=target_of("tools/call", PARAMS),
    digest=digest_of(PARAMS),
)
TOKEN = SEAL.mint(CLAIMS)


def opened(token: str, params: bytes) -> Claims | None:
    try:
        return SEAL.open(token, now_unix=1500, server="ops", principal="alice", method="tools/call", params=params)
    except RemoteProtocolError as error:
        refusal = error
    if isinstance(refusal, Unsealed):
        assert refusal.message == "Invalid or expired requestState"
    else:
        assert token == TOKEN  # the params that come with a forged one are not even looked at
    return None


def test_one_input(data: bytes) -> None:
    high, low, by = (data + b"\0\0\0")[:3]
    changed = bytearray(TOKEN.encode())
    changed[(high << 8 | low) % len(changed)] ^= by
    token = changed.decode("latin-1")
    assert (opened(token, PARAMS) == CLAIMS) == (token == TOKEN)
    own, _, params = data[3:].partition(b"\0")
    text = own.decode("utf-8", "surrogateescape")
    assert opened(text, PARAMS) is None or text == TOKEN
    if is_ours(text):
        assert text.startswith("ist1.")
    if opened(TOKEN, params) is not None:
        assert target_of("tools/call", params) == "deploy"
        assert digest_of(params) == CLAIMS.digest
