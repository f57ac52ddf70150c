"""The results that clients are asked with, and the `requestState` tokens in them: one form of claims, whatever a call
waits for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..base.errors import RemoteProtocolError
from ..base.methods import MAY_ASK
from ..bridge.request_state import Claims, ClaimsKind, RequestStateSigner, digest_of, is_ours, target_of
from ..jsonrpc import envelope
from ..jsonrpc.outline import outline_of
from ..state.context import Context
from ..state.exchange import Exchange
from ..state.session import Session


class CallState:
    """Mints the `requestState` tokens of calls.

    Args:
        owner: names this run of the proxy. The calls of another run are not in its memory.
    """

    def __init__(self, context: Context, signer: RequestStateSigner, owner: str) -> None:
        self._context = context
        self._signer = signer
        self._owner = owner

    def is_own(self, claims: Claims) -> bool:
        """True if this run of the proxy minted the token."""
        return claims.owner == self._owner

    def state(
        self,
        session: Session,
        exchange: Exchange,
        kind: ClaimsKind,
        *,
        suspended_call: str = "",
        round: int = 0,
        questions: Mapping[str, str] | None = None,
    ) -> str:
        """Returns a token for a call. It is valid for the call's principal, server and request, during
        `Limits.suspended_call_ttl_s`."""
        now_unix = self._context.now_unix
        claims = Claims(
            kind=kind,
            issued_at_unix=int(now_unix),
            expires_at_unix=int(now_unix + self._context.limits.suspended_call_ttl_s),
            owner=self._owner,
            suspended_call=suspended_call,
            round=round,
            server=session.server,
            principal=self._signer.tag(session.principal),
            method=exchange.method,
            target=target_of(exchange.method, exchange.said),
            digest=digest_of(exchange.said),
            questions=dict(questions or {}),
        )
        return self._signer.mint(claims)

    def claims_of(self, session: Session, method: str, params: bytes | None) -> Claims | None:
        """Returns the content of the token in a request; None if there is none, or if it is not valid for it."""
        if method not in MAY_ASK or params is None or b"requestState" not in outline_of(params):
            return None
        try:
            text = envelope.text_of(envelope.member_of(params, "requestState"))
            if text is None or not is_ours(text):
                return None
            return self._signer.open(
                text,
                now_unix=self._context.now_unix,
                server=session.server,
                principal=session.principal,
                method=method,
                params=params,
            )
        except RemoteProtocolError:
            return None


def asking(id_raw: bytes, entries: Mapping[str, bytes], state: str, server_info: bytes | None) -> bytes:
    """Returns a response with an `InputRequiredResult`. Like every result it says who the server is, if that is known
    (2026-07-28 basic, "`_meta`").

    Args:
        entries: the JSON of each `InputRequest`, by its key.
        state: the `requestState`.
        server_info: the JSON of the server's `Implementation`.
    """
    listed = b",".join(msgspec.json.encode(key) + b":" + entry for key, entry in entries.items())
    result = b'{"resultType":"input_required","inputRequests":{' + listed + b'},"requestState":'
    meta = b"" if server_info is None else b',"_meta":{"io.modelcontextprotocol/serverInfo":' + server_info + b"}"
    return envelope.encode_result(id_raw, result + msgspec.json.encode(state) + meta + b"}")
