"""`requestState`: what a client carries from one leg of a call to the next, so that nobody can make it up.

A call that waits for its client's input has no connection. What belongs to it is kept here, and the client holds a
token that names it: who may come back, with which request, until when. The token is signed and not encrypted, because
its claims hold only opaque ids, digests, and what its holder has said itself.

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
"""Characters. Clients keep the token beside each open call, and some put it into a URL or a header."""
KEY_MIN_BYTES: Final = 16
SKEW_S: Final = 60.0
"""Replicas' clocks differ by less."""
TARGET_MAX: Final = 256
"""Characters of a name or URI that stand in the token as they are; of longer ones, a digest."""

_KEY_ID_BYTES: Final = 4
_TAG_BYTES: Final = 16
_TOKEN: Final = re.compile(r"(ist1\.[A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{48})")  # 48: key id and signature, without a rest
_TARGETS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_SALIENT: Final = ("arguments", "uri")


class Kind(enum.Enum):
    """What the token is for."""

    PARK = "park"  # the server waits for answers
    URL = "url"  # the user has a page to visit first
    DEFER = "defer"  # the request was not sent yet
    REPLAY = "replay"  # the request is made anew, with the answers at hand


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a token says.

    Attributes:
        issued_at_unix, expires_at_unix: whole seconds.
        owner: which run of the proxy keeps what the token names.
        park: its opaque id there.
        round: how often the client was asked before.
        principal: whose it is, as `Seal.tag` gives it; never the name.
        target: the tool, prompt or resource, as `target_of` gives it.
        digest: of the arguments, as `digest_of` gives it.
        questions: by key, the digest of what was asked, where the answers are matched by that.
    """

    kind: Kind = msgspec.field(name="k")
    issued_at_unix: int = msgspec.field(name="i")
    expires_at_unix: int = msgspec.field(name="e")
    owner: str = msgspec.field(name="o")
    park: str = msgspec.field(name="a")
    server: str = msgspec.field(name="s")
    principal: str = msgspec.field(name="p")
    method: str = msgspec.field(name="m")
    target: str = msgspec.field(name="t", default="")
    digest: str = msgspec.field(name="d", default="")
    round: int = msgspec.field(name="r", default=0)
    questions: dict[str, str] = msgspec.field(name="q", default_factory=dict)


class Reason(enum.Enum):
    """Why a token is refused, for the log."""

    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    FORGED = "forged"
    NOT_YET = "not_yet"
    EXPIRED = "expired"
    OTHER_SERVER = "other_server"
    OTHER_PRINCIPAL = "other_principal"
    OTHER_REQUEST = "other_request"


class Unsealed(RemoteProtocolError):
    """A `requestState` that is refused. Its sender learns that, and not why: `reason` is for the log only."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(
            "Invalid or expired requestState",
            rpc_code=INVALID_PARAMS,
            clause="2026-07-28 basic/patterns/mrtr, Server Requirements",
            data={"reason": "invalid_request_state"},
        )
        self.reason = reason


class _Key(NamedTuple):
    """One secret, and what is derived from it: a key for each purpose, and a name that tells nothing."""

    id: bytes
    signing: bytes
    tagging: bytes


class Seal:
    """Signs and checks tokens.

    Args:
        keys: secrets of at least 16 bytes. The first seals, all open: a new one is put in front, and the old one taken
            away when its last token has expired.

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
        """What stands for a principal in a token: it can be recognized, and not read."""
        return _tag(self._keys[0], principal)

    def mint(self, claims: Claims) -> str:
        """The token that says `claims`. Raises LocalProtocolError if it would be longer than `TOKEN_MAX`."""
        try:
            said = msgspec.json.encode(claims)
        except UnicodeEncodeError:
            raise LocalProtocolError("got a claim with half a surrogate pair, expected Unicode text") from None
        signed = PREFIX + _encode(said)
        key = self._keys[0]
        token = f"{signed}.{_encode(key.id + _signature(key, signed))}"
        if len(token) > TOKEN_MAX:
            raise LocalProtocolError(f"got claims for a token of {len(token)} characters, expected {TOKEN_MAX} at most")
        return token

    def open(
        self, text: str, *, now_unix: float, server: str, principal: str, method: str, params: bytes | None
    ) -> Claims:
        """What a token says, if it was minted here for this very request.

        Args:
            principal: its name, not its tag.
            params: of the request that brings the token.

        Raises:
            Unsealed: it was not, or is too old. Nothing was changed.
            RemoteProtocolError: the params cannot be read, or have a member twice.
        """
        key, claims = self._read(text)
        if claims.issued_at_unix > now_unix + SKEW_S:
            raise Unsealed(Reason.NOT_YET)
        if claims.expires_at_unix < now_unix - SKEW_S:
            raise Unsealed(Reason.EXPIRED)
        if claims.server != server:
            raise Unsealed(Reason.OTHER_SERVER)
        if not hmac.compare_digest(claims.principal.encode(), _tag(key, principal).encode()):
            raise Unsealed(Reason.OTHER_PRINCIPAL)
        if (claims.method, claims.target, claims.digest) != (method, target_of(method, params), digest_of(params)):
            raise Unsealed(Reason.OTHER_REQUEST)
        return claims

    def _read(self, text: str) -> tuple[_Key, Claims]:
        match = _TOKEN.fullmatch(text) if len(text) <= TOKEN_MAX else None
        if match is None:
            raise Unsealed(Reason.MALFORMED)
        signed = match[1]
        proof = base64.urlsafe_b64decode(match[2])
        key_id, signature = proof[:_KEY_ID_BYTES], proof[_KEY_ID_BYTES:]
        named = [key for key in self._keys if key.id == key_id]
        if not named:
            raise Unsealed(Reason.UNKNOWN_KEY)
        found = [key for key in named if hmac.compare_digest(signature, _signature(key, signed))]
        if not found:
            raise Unsealed(Reason.FORGED)
        try:
            return found[0], msgspec.json.decode(_decode(signed[len(PREFIX) :]), type=Claims)
        except (msgspec.DecodeError, ValueError):  # of another release, under the same key
            raise Unsealed(Reason.MALFORMED) from None


def is_ours(text: str) -> bool:
    """Whether a `requestState` begins as ours do. Others are a server's own, and travel as they are."""
    return text.startswith(PREFIX)


def target_of(method: str, params: bytes | None) -> str:
    """The name or URI that a request is about, "" if it has none; of one that is long, or no Unicode text, a digest.

    Raises RemoteProtocolError where `params` has a member twice.
    """
    member = _TARGETS.get(method)
    raw = None if member is None else member_of(params, member)
    if raw is None:
        return ""
    text = text_of(raw)
    return text if text is not None and len(text) <= TARGET_MAX else "\0" + digest_of_value(raw)


def digest_of(params: bytes | None) -> str:
    """A digest of what a request says: its `arguments`, or the `uri` of a resource, by value.

    `_meta`, `inputResponses` and `requestState` differ from leg to leg and do not count. Raises as `digest_of_value`,
    and where `params` has a member twice.
    """
    salient = {name: raw for name in _SALIENT if (raw := member_of(params, name)) is not None}
    return digest_of_value(b"{" + b",".join(b'"%b":%b' % (n.encode(), raw) for n, raw in salient.items()) + b"}")


def digest_of_value(raw: bytes) -> str:
    """A digest of a JSON value: equal for two texts if, and for all that is known only if, they mean the same.

    Numbers count by their exact value, objects whatever the order of their members; of a key that occurs twice the last
    one counts, as most readers have it. Half a surrogate pair is a character of its own.

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


# An object's keys get a dot in front, so that an object with an empty key can stand for a number.


def _tagged_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {"." + key: value for key, value in pairs}


def _tagged_number(text: str) -> dict[str, object]:
    return {"": normal_form(text)}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _derived(secret: bytes) -> _Key:
    of = [
        hmac.new(secret, b"isthmus requestState 1: " + purpose, hashlib.sha256).digest()
        for purpose in (b"id", b"signing", b"tagging")
    ]
    return _Key(of[0][:_KEY_ID_BYTES], of[1], of[2])


def _tag(key: _Key, principal: str) -> str:
    encoded = principal.encode(errors="surrogatepass")
    return _encode(hmac.new(key.tagging, encoded, hashlib.sha256).digest()[:_TAG_BYTES])


def _signature(key: _Key, signed: str) -> bytes:
    return hmac.new(key.signing, signed.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
