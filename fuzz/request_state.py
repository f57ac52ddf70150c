"""Any text comes as `requestState`, with any request: only a token that was minted for that request is accepted.

The first two bytes say where a valid token is changed, the third how; the rest is another token, a zero byte, and the
params of the request. Accepted outcomes: `InvalidRequestState`, with one message for every reason;
`RemoteProtocolError` if the params cannot be read; or the claims that were minted, if token and request are the valid
ones.
"""

from __future__ import annotations

from isthmus.core.base.errors import RemoteProtocolError
from isthmus.core.bridge.request_state import (
    Claims,
    ClaimsKind,
    InvalidRequestState,
    RequestStateSigner,
    digest_of,
    is_ours,
    target_of,
)

SIGNER = RequestStateSigner([b"the key of this target"])
PARAMS = b'{"name":"deploy","arguments":{"to":"staging"}}'
CLAIMS = Claims(
    kind=ClaimsKind.PARK,
    issued_at_unix=1000,
    expires_at_unix=2000,
    owner="a",
    suspended_call="b",
    server="ops",
    principal=SIGNER.tag("alice"),
    method="tools/call",
    target=target_of("tools/call", PARAMS),
    digest=digest_of(PARAMS),
)
TOKEN = SIGNER.mint(CLAIMS)


def opened(token: str, params: bytes) -> Claims | None:
    try:
        return SIGNER.open(token, now_unix=1500, server="ops", principal="alice", method="tools/call", params=params)
    except RemoteProtocolError as error:
        refusal = error
    if isinstance(refusal, InvalidRequestState):
        assert refusal.message == "Invalid or expired requestState"
    else:
        assert token == TOKEN  # the params that come with a forged token are not read
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
