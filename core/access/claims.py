"""The claims of a token, or of an answer about one (RFC 7519, 4.1; RFC 7662, 2.2; RFC 9068, 2.2): whom they name, what
they allow, for whom and until when."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ..base.timestamps import format_time
from .identity import NOTHING, Identity
from .issuer_answers import Refused
from .issuer_settings import IssuerSettings
from .json_web_tokens import NAME_MAX_CHARS, shown

LEEWAY_S: Final = 30.0
"""Seconds that the clock of an issuer may differ from this machine's (RFC 7519, 4.1.4)."""
VALUES_MAX: Final = 1000
"""Audiences, scopes and groups of a token, of each. Issuers that list groups stop at some hundreds. At it: 401."""

_LATEST_UNIX: Final = 253402300799  # the last second of the year 9999
_AUDIENCES_SHOWN: Final = 4


class Accepted(msgspec.Struct, frozen=True):
    """The content of claims, to be believed once their origin is proved.

    Attributes:
        audiences: the audiences, each with a slash at its end and without.
        is_for_all: one of the audiences is accepted for every endpoint.
    """

    identity: Identity
    audiences: frozenset[str]
    is_for_all: bool


class ClaimRules:
    """Judges the claims of an issuer.

    Args:
        place: where the issuer stands in the configuration: `auth.issuers[0]`.
    """

    def __init__(self, settings: IssuerSettings, place: str) -> None:
        self._settings = settings
        self._place = place
        self._contained = {scope: _closure(settings.implies, scope) for scope in settings.implies}

    def judge(self, claims: dict[str, object], via: str, now: float) -> Accepted | Refused:
        """Returns what the claims say, or why they are refused.

        Args:
            via: `jwt`, or `introspection` for claims that an issuer has just sent, which may lack `exp`.
            now: Unix seconds.
        """
        expires_at = _read_times(claims, now)
        if isinstance(expires_at, Refused):
            return expires_at
        if expires_at is None and via == "jwt":
            return Refused("it does not say when it expires (exp)")
        if via == "jwt" and ("at_hash" in claims or "c_hash" in claims):  # OpenID Connect Core, 3.1.3.6 and 3.3.2.11
            return Refused("it is an ID token, expected an access token")
        audiences = _texts(claims.get("aud"))
        if not audiences:
            return Refused("it does not say which resource it is for (aud)")
        name = claims.get(self._settings.principal)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX_CHARS or not name.isprintable():
            claim = self._settings.principal
            return Refused(f"it names no caller ({claim}), expected 1 to {NAME_MAX_CHARS} printable characters")
        if not isinstance(claims.get("sub", ""), str) or not isinstance(claims.get("jti", ""), str):
            return Refused("its sub or its jti is no text")
        scopes = _texts(claims.get("scope", claims.get("scp", "")), " ")
        groups = _texts(claims.get(self._settings.groups, ()) if self._settings.groups else ())
        if scopes is None or groups is None:
            wrong = "groups" if scopes is not None else "scopes"
            return Refused(f"its {wrong} cannot be read, expected {VALUES_MAX} texts at most")
        identity = Identity(
            principal=f"jwt:{self._settings.url}|{name}",
            scopes=self._with_contained(scopes),
            groups=groups,
            expires_at=expires_at,
            via=via,
            client_id=_client_of(claims),
            token_id=_digest(claims.get("jti")),
            issued_at=_issue_time(claims),
        )
        is_for_all = not audiences.isdisjoint(self._settings.audience)
        return Accepted(identity, _with_slashes(audiences), is_for_all)

    def refuse_audience(self, accepted: Accepted, expected: Collection[str]) -> Refused:
        """Returns the refusal of a token that is for other resources than the `expected` ones."""
        seen = _listed(sorted({url.removesuffix("/") for url in accepted.audiences}), "and")
        if not expected:
            return Refused(f"this token is for {seen}, which is not in {self._place}.audience")
        # A client is told the usual path of an endpoint before its second one.
        resources = sorted({url.removesuffix("/") for url in expected}, key=lambda url: ("/mcp/" not in url, url))
        wanted = _listed(resources, "or")
        advice = f"request it for that resource, or list it in {self._place}.audience"
        return Refused(f"this token is for {seen}, expected {wanted}: {advice}")

    def _with_contained(self, scopes: frozenset[str]) -> frozenset[str]:
        contained = self._contained
        if not contained:
            return scopes
        return scopes.union(*(contained[scope] for scope in scopes if scope in contained))


def is_for(accepted: Accepted, audiences: Iterable[str]) -> bool:
    """True if a token is for one of the URLs."""
    return accepted.is_for_all or not accepted.audiences.isdisjoint(audiences)


def _read_times(claims: dict[str, object], now: float) -> float | Refused | None:
    """Returns the Unix seconds at which the claims end, the leeway included; None if they name none.

    Fractions of a second are cut off, so that a token ends no later than it says.
    """
    starts_at, ends_at = _seconds(claims, "nbf"), _seconds(claims, "exp")
    if isinstance(starts_at, Refused) or isinstance(ends_at, Refused):
        return starts_at if isinstance(starts_at, Refused) else ends_at
    if ends_at is not None and ends_at <= now - LEEWAY_S:
        return Refused(f"it expired {round(now - ends_at)} s ago; this machine's clock says {format_time(now)}")
    if starts_at is not None and starts_at > now + LEEWAY_S:
        return Refused(
            f"it is not valid for another {round(starts_at - now)} s (nbf), and clocks may differ by {LEEWAY_S:g} s; "
            f"this machine's clock says {format_time(now)}"
        )
    return None if ends_at is None else ends_at + LEEWAY_S


def _issue_time(claims: dict[str, object]) -> int | None:
    """Returns the Unix second in which the claims were made (`iat`); None if they do not say it, or not readably."""
    issued_at = _seconds(claims, "iat")
    return None if isinstance(issued_at, Refused) else issued_at


def _seconds(claims: dict[str, object], claim: str) -> int | Refused | None:
    if claim not in claims:
        return None
    value = claims[claim]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Refused(f"its {claim} is no number of seconds")
    return int(min(max(value, -_LATEST_UNIX), _LATEST_UNIX))


def _texts(value: object, separator: str = "") -> frozenset[str] | None:
    """Returns the texts of a claim that is a text or a list of texts; None for anything else, or too much."""
    if isinstance(value, str):
        value = [part for part in value.split(separator) if part] if separator else [value]
    if not isinstance(value, list | tuple) or len(value) > VALUES_MAX:
        return None
    return frozenset(value) if all(isinstance(text, str) for text in value) else None


def _client_of(claims: dict[str, object]) -> str:
    """Returns the client that the token was issued to: `client_id` (RFC 9068, 2.2), or `azp` of OpenID Connect."""
    value = claims.get("client_id", claims.get("azp"))
    return value if isinstance(value, str) and len(value) <= NAME_MAX_CHARS and value.isprintable() else ""


def _digest(token_id: object) -> str:
    return hashlib.sha256(token_id.encode()).hexdigest()[:16] if isinstance(token_id, str) else ""


def _with_slashes(audiences: frozenset[str]) -> frozenset[str]:
    bare = {audience.removesuffix("/") for audience in audiences}
    return frozenset(bare | {audience + "/" for audience in bare})


def _listed(texts: Sequence[str], last: str) -> str:
    """Returns texts as they stand in a sentence: `a, b or c`."""
    shorter = [shown(text) for text in texts[:_AUDIENCES_SHOWN]]
    if len(texts) > _AUDIENCES_SHOWN:
        shorter[-1] = f"{len(texts) - _AUDIENCES_SHOWN + 1} more"
    return f" {last} ".join(filter(None, (", ".join(shorter[:-1]), shorter[-1])))


def _closure(implies: Mapping[str, tuple[str, ...]], scope: str) -> frozenset[str]:
    """Returns all scopes that a scope contains, also by way of others."""
    found: set[str] = set()
    left = [scope]
    while left:
        new = set(implies.get(left.pop(), ())) - found
        found |= new
        left += new
    return frozenset(found) or NOTHING
