"""The signed token (`requestState`) that a client carries from one request of a call to the next.

A call that waits for its client's input has no connection. The proxy keeps the call, and the client holds a token that
names it and says who may continue it, with which request, and until when. The token is signed, so that it cannot be
forged. It is not encrypted, because its claims hold only opaque ids, digests, and what its holder has sent itself.

Source: 2026-07-28 basic/patterns/mrtr, "Server Requirements": servers must "protect its integrity" and should bind it
to "the authenticated principal", "a short expiry" and "the method name and a digest of its salient parameters".
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import msgspec

from ..base.errors import INVALID_PARAMS, PARSE_ERROR, LocalProtocolError, RemoteProtocolError
from ..jsonrpc.envelope import member_of, text_of
from ..jsonrpc.number_text import normal_form

PREFIX: Final = "ist1."
TOKEN_MAX: Final = 4096
"""Characters of a `requestState`. Clients keep the token beside each open call, and some put it into a URL or a header.
At it: a longer token of a client is refused as invalid."""
KEY_MIN_BYTES: Final = 16
SKEW_S: Final = 60.0
"""The clocks of replicas differ by less."""
TARGET_MAX: Final = 256
"""Characters of a name or URI that the token contains verbatim; longer ones are replaced by a digest."""

_KEY_ID_BYTES: Final = 4
_TAG_BYTES: Final = 16
_TOKEN: Final = re.compile(r"(ist1\.[A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{48})")  # 48: key id and signature
_TARGETS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_SALIENT: Final = ("arguments", "uri")


class ClaimsKind(enum.Enum):
    """The purpose of a token."""

    PARK = "park"  # the server waits for the client's answers
    URL = "url"  # the user has to visit a page first
    DEFER = "defer"  # the request was not sent to the server yet
    REPLAY = "replay"  # the request is sent again, with the answers at hand


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of a token.

    Attributes:
        issued_at_unix, expires_at_unix: whole seconds.
        owner: the run of the proxy that keeps what the token names.
        suspended_call: the call's opaque id there.
        round: how often the client was asked before.
        principal: the client's principal, as `RequestStateSigner.tag` gives it; never the name.
        target: the tool, prompt or resource, as `target_of` gives it.
        digest: of the arguments, as `digest_of` gives it.
        questions: by key, the digest of each question, where the answers are matched by digest.
    """

    kind: ClaimsKind = msgspec.field(name="k")
    issued_at_unix: int = msgspec.field(name="i")
    expires_at_unix: int = msgspec.field(name="e")
    owner: str = msgspec.field(name="o")
    suspended_call: str = msgspec.field(name="a")
    server: str = msgspec.field(name="s")
    principal: str = msgspec.field(name="p")
    method: str = msgspec.field(name="m")
    target: str = msgspec.field(name="t", default="")
    digest: str = msgspec.field(name="d", default="")
    round: int = msgspec.field(name="r", default=0)
    questions: dict[str, str] = msgspec.field(name="q", default_factory=dict)


class Reason(enum.Enum):
    """The reason for which a token is refused, for the log."""

    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    FORGED = "forged"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    OTHER_SERVER = "other_server"
    OTHER_PRINCIPAL = "other_principal"
    OTHER_REQUEST = "other_request"


class InvalidRequestState(RemoteProtocolError):
    """A `requestState` was refused. Its sender is not told why: `reason` is for the log only."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(
            "Invalid or expired requestState",
            rpc_code=INVALID_PARAMS,
            clause="2026-07-28 basic/patterns/mrtr, Server Requirements",
            data={"reason": "invalid_request_state"},
        )
        self.reason = reason


class _Key(NamedTuple):
    """One secret and what is derived from it: a key for each purpose, and an id that reveals nothing."""

    id: bytes
    signing: bytes
    tagging: bytes


class RequestStateSigner:
    """Signs and checks tokens.

    Args:
        keys: secrets of at least 16 bytes. The first one signs, all are accepted. To rotate, put a new key in front and
            remove the old one when its last token has expired.

    Raises:
        LocalProtocolError: there is no key, or one is too short.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise LocalProtocolError("got no key for requestState, expected at least one")
        if any(len(key) < KEY_MIN_BYTES for key in keys):
            raise LocalProtocolError(f"got a key for requestState that is too short, expected {KEY_MIN_BYTES} bytes")
        self._keys = [_derived(key) for key in keys]

    def tag(self, principal: str) -> str:
        """Returns the text that stands for a principal in a token: it can be compared, but not read."""
        return _tag(self._keys[0], principal)

    def mint(self, claims: Claims) -> str:
        """Returns the token with these claims.

        Raises:
            LocalProtocolError: the token would be longer than `TOKEN_MAX`, or a claim is no Unicode text.
        """
        try:
            payload = msgspec.json.encode(claims)
        except UnicodeEncodeError:
            raise LocalProtocolError("got a claim with half a surrogate pair, expected Unicode text") from None
        signed = PREFIX + _encode(payload)
        key = self._keys[0]
        token = f"{signed}.{_encode(key.id + _signature(key, signed))}"
        if len(token) > TOKEN_MAX:
            raise LocalProtocolError(f"got claims for a token of {len(token)} characters, expected {TOKEN_MAX} at most")
        return token

    def open(
        self, text: str, *, now_unix: float, server: str, principal: str, method: str, params: bytes | None
    ) -> Claims:
        """Returns the claims of a token that was minted here for this very request.

        Args:
            principal: its name, not its tag.
            params: of the request that brings the token.

        Raises:
            InvalidRequestState: the token is forged, too old, or was minted for another request. Nothing was changed.
            RemoteProtocolError: the params cannot be read, or have a member twice.
        """
        key, claims = self._read(text)
        if claims.issued_at_unix > now_unix + SKEW_S:
            raise InvalidRequestState(Reason.NOT_YET)
        if claims.expires_at_unix < now_unix - SKEW_S:
            raise InvalidRequestState(Reason.EXPIRED)
        if claims.server != server:
            raise InvalidRequestState(Reason.OTHER_SERVER)
        if not hmac.compare_digest(claims.principal.encode(), _tag(key, principal).encode()):
            raise InvalidRequestState(Reason.OTHER_PRINCIPAL)
        if (claims.method, claims.target, claims.digest) != (method, target_of(method, params), digest_of(params)):
            raise InvalidRequestState(Reason.OTHER_REQUEST)
        return claims

    def _read(self, text: str) -> tuple[_Key, Claims]:
        match = _TOKEN.fullmatch(text) if len(text) <= TOKEN_MAX else None
        if match is None:
            raise InvalidRequestState(Reason.MALFORMED)
        signed = match[1]
        proof = base64.urlsafe_b64decode(match[2])
        key_id, signature = proof[:_KEY_ID_BYTES], proof[_KEY_ID_BYTES:]
        named = [key for key in self._keys if key.id == key_id]
        if not named:
            raise InvalidRequestState(Reason.UNKNOWN_KEY)
        found = [key for key in named if hmac.compare_digest(signature, _signature(key, signed))]
        if not found:
            raise InvalidRequestState(Reason.FORGED)
        try:
            return found[0], msgspec.json.decode(_decode(signed[len(PREFIX) :]), type=Claims)
        except (msgspec.DecodeError, ValueError):  # minted by another release, under the same key
            raise InvalidRequestState(Reason.MALFORMED) from None


def is_ours(text: str) -> bool:
    """True if a `requestState` begins as the proxy's own do. Others are a server's, and pass unchanged."""
    return text.startswith(PREFIX)


def target_of(method: str, params: bytes | None) -> str:
    """Returns the name or URI that a request is about; "" if it has none.

    A name that is longer than `TARGET_MAX`, or no Unicode text, is replaced by a digest.

    Raises:
        RemoteProtocolError: `params` has a member twice.
    """
    member = _TARGETS.get(method)
    raw = None if member is None else member_of(params, member)
    if raw is None:
        return ""
    text = text_of(raw)
    return text if text is not None and len(text) <= TARGET_MAX else "\0" + digest_of_value(raw)


def digest_of(params: bytes | None) -> str:
    """Returns a digest of the content of a request: its `arguments`, or the `uri` of a resource, by value.

    `_meta`, `inputResponses` and `requestState` differ between the requests of a call and do not count.

    Raises:
        RemoteProtocolError: a value is not JSON or nested too deeply, or `params` has a member twice.
    """
    salient = {name: raw for name in _SALIENT if (raw := member_of(params, name)) is not None}
    return digest_of_value(b"{" + b",".join(b'"%b":%b' % (n.encode(), raw) for n, raw in salient.items()) + b"}")


def digest_of_value(raw: bytes) -> str:
    """Returns a digest of a JSON value: texts that mean the same have the same digest, others differ.

    Numbers count by their exact value, objects whatever the order of their members. Of a key that occurs twice the last
    one counts, as for most readers. A lone surrogate is a character of its own.

    Raises:
        RemoteProtocolError: `raw` is not JSON, or is nested more deeply than can be read.
    """
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_tagged_object,
            parse_int=_tagged_number,
            parse_float=_tagged_number,
            parse_constant=_refuse,
        )
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        text = None
    except ValueError:
        raise RemoteProtocolError("got text that is not JSON", rpc_code=PARSE_ERROR) from None
    if text is None:
        raise RemoteProtocolError("got JSON nested too deeply, expected a few hundred levels", rpc_code=INVALID_PARAMS)
    return _encode(hashlib.sha256(text.encode()).digest())


# Keys of objects get a dot in front, so that an object with an empty key can represent a number.


def _tagged_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {"." + key: value for key, value in pairs}


def _tagged_number(text: str) -> dict[str, object]:
    return {"": normal_form(text)}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _derived(secret: bytes) -> _Key:
    digests = [
        hmac.new(secret, b"isthmus requestState 1: " + purpose, hashlib.sha256).digest()
        for purpose in (b"id", b"signing", b"tagging")
    ]
    return _Key(digests[0][:_KEY_ID_BYTES], digests[1], digests[2])


def _tag(key: _Key, principal: str) -> str:
    encoded = principal.encode(errors="surrogatepass")
    return _encode(hmac.new(key.tagging, encoded, hashlib.sha256).digest()[:_TAG_BYTES])


def _signature(key: _Key, signed: str) -> bytes:
    return hmac.new(key.signing, signed.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
