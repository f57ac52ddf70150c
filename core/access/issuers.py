"""The issuers whose tokens are accepted: who a token is from.

A driver asks in a loop, `CHECK_ROUNDS_MAX` times at most:

    answer = issuers.check(token, audiences, now)
    if not isinstance(answer, Waits): it is the answer
    send answer.request, not before its `not_before`; callers whose request is equal wait for the same response
    once for each response: issuers.fetched(request, reply, now), or issuers.failed(request, now, why)

A request leaves the table of those that are under way in the same moment in which it is reported. It does not end with
the caller that began it. `due` names the requests that nobody waits for yet.
"""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from ..base.errors import LocalProtocolError
from .claims import Accepted, ClaimRules, is_for
from .identity import Identity
from .introspection import INTROSPECTION_KEPT_S, introspection_request, read_introspection
from .issuer_answers import DocumentWanted, Refused, Reply, Unavailable, Waits, Wanted
from .issuer_documents import IssuerDocuments
from .issuer_settings import ALGORITHMS, IssuerSettings
from .json_web_tokens import TOKEN_MAX_CHARS, JsonWebToken, issuer_of, read_token, shown
from .key_sets import KeySet
from .public_keys import Key

CHECK_ROUNDS_MAX: Final = 16
"""Questions about one token: two attempts to read metadata at three addresses and keys, and some to spare. A driver
that has asked so often answers 503."""
KEPT_S: Final = 300.0
"""Seconds for which a token is not verified again, at most."""
REFUSED_KEPT_S: Final = 10.0
"""Seconds for which a token is refused again without a look at it, if that look has cost a signature or a request."""
UNAVAILABLE_KEPT_S: Final = 5
"""Seconds for which an issuer is not asked again about a token that it did not answer about."""
KEPT_MAX: Final = 4096
"""Accepted tokens that are remembered, and as many refused ones. At it: the oldest is forgotten, and verified again."""
ASKED_MAX: Final = 64
"""Tokens that an issuer is being asked about at one time. At it: 503."""
ASKED_S: Final = 30.0
"""Seconds after which a question counts as lost."""

Verify = Callable[[Key, str, bytes, bytes], bool]


class _Kept(NamedTuple):
    until: float
    accepted: Accepted
    rules: ClaimRules


class _Issuer:
    """An issuer, with what was read of it."""

    def __init__(self, settings: IssuerSettings, place: str) -> None:
        introspection = settings.introspection
        has_keys = introspection is None
        self.settings = settings
        self.place = place
        self.rules = ClaimRules(settings, place)
        self.documents = IssuerDocuments(settings.url, place, jwks_url=settings.jwks_url, has_keys=has_keys)
        self.keys = KeySet(self.documents)
        self.needs_documents = has_keys or not (introspection is not None and introspection.url)


class Issuers:
    """Finds out who a token is from.

    Args:
        settings: one of them at most with `introspection`: it is asked about every token that is no JWT.
        verify: whether a signature is right, of a key, an algorithm, the signed message and the signature.

    Attributes:
        urls: their identifiers, in the order of the settings.
        epoch: grows when a key set changed: identities that were established before are to be established anew.

    Raises:
        LocalProtocolError: the settings cannot be used.
    """

    def __init__(self, settings: Sequence[IssuerSettings], *, verify: Verify) -> None:
        _check_settings(settings)
        self.epoch = 0
        self.urls = tuple(each.url for each in settings)
        self._verify = verify
        self._issuers = {one.url: _Issuer(one, f"auth.issuers[{at}]") for at, one in enumerate(settings)}
        self._introspecting = next((one for one in self._issuers.values() if one.settings.introspection), None)
        self._accepted: dict[bytes, _Kept] = {}
        self._denied: dict[bytes, tuple[float, Refused | Unavailable]] = {}
        self._asked: dict[bytes, float] = {}

    def names(self, token: str) -> bool:
        """True if the token has a form that one of the issuers may have given it: that of a JWT, or any if an issuer is
        asked about tokens."""
        return self._introspecting is not None or (bool(self._issuers) and token.count(".") in (2, 4))

    def check(self, token: str, audiences: Collection[str], now: float) -> Identity | Refused | Unavailable | Waits:
        """Returns who the token is from.

        An identity holds until it expires. One that came by introspection is to be established anew after
        `INTROSPECTION_KEPT_S`, because the issuer may have revoked the token.

        Args:
            audiences: the URLs of the endpoint, one of which the token must be for; a slash at the end does not count.
            now: Unix seconds.
        """
        digest = _digest(token)
        kept = self._accepted.get(digest)
        if kept is not None and now < kept.until:
            accepted = kept.accepted
            return accepted.identity if is_for(accepted, audiences) else kept.rules.refuse_audience(accepted, audiences)
        denied = self._denied.get(digest)
        if denied is not None and now < denied[0]:
            return denied[1]
        return self._establish(token, digest, audiences, now)

    def fetched(self, request: Wanted, reply: Reply, now: float) -> None:
        """Takes the response to a request. A response that nobody waits for changes nothing."""
        issuer = self._issuers.get(request.issuer)
        if issuer is None:
            return
        if isinstance(request, DocumentWanted):
            keys = issuer.documents.keys
            if issuer.documents.receive(request, reply, now):
                self._end_attempt(issuer, keys)
            return
        digest = _digest(request.token)
        if self._asked.pop(digest, None) is None:
            return
        answer = read_introspection(reply, issuer.settings.url, issuer.rules, now)
        if isinstance(answer, Accepted):
            self._keep(digest, answer, issuer, now + INTROSPECTION_KEPT_S)
        elif isinstance(answer, Refused):
            self._deny(digest, answer, now + REFUSED_KEPT_S)
        else:
            self._deny(digest, Unavailable(UNAVAILABLE_KEPT_S, answer), now + UNAVAILABLE_KEPT_S)

    def failed(self, request: Wanted, now: float, why: str = "") -> None:
        """Notes that there is no response to a request.

        Args:
            why: for people.
        """
        issuer = self._issuers.get(request.issuer)
        if issuer is None:
            return
        if isinstance(request, DocumentWanted):
            keys = issuer.documents.keys
            if issuer.documents.fail(request, why, now):
                self._end_attempt(issuer, keys)
            return
        digest = _digest(request.token)
        if self._asked.pop(digest, None) is not None:
            text = f"{shown(issuer.settings.url)} cannot be asked about the token: {why or 'no answer'}"
            self._deny(digest, Unavailable(UNAVAILABLE_KEPT_S, text), now + UNAVAILABLE_KEPT_S)

    def due(self, now: float) -> list[DocumentWanted]:
        """Returns the requests for documents that were never read or are about to expire. Asked every half minute or
        so, the driver keeps callers from waiting for them."""
        found = [one.documents.due(now) for one in self._issuers.values() if one.needs_documents]
        return [request for request in found if request is not None]

    def first_requests(self, now: float) -> list[DocumentWanted]:
        """Returns the requests for documents of which no attempt to read them has ended. None are left after it."""
        found = [one.documents for one in self._issuers.values() if one.needs_documents]
        return [documents.want(now) for documents in found if not documents.attempts]

    def problems(self) -> list[str]:
        """Returns why the documents of issuers cannot be read, for people, each with its place in the settings."""
        found = [(one.place, one.documents.problem) for one in self._issuers.values()]
        return [f"{place}: {problem}" for place, problem in found if problem]

    def _establish(
        self, text: str, digest: bytes, audiences: Collection[str], now: float
    ) -> Identity | Refused | Unavailable | Waits:
        token = read_token(text)
        named = token.issuer if isinstance(token, JsonWebToken) else issuer_of(text)
        issuer = self._introspecting if named is None else self._issuers.get(named)
        if issuer is not None and issuer.settings.introspection is not None:
            return self._introspect(issuer, text, digest, now)
        if isinstance(token, Refused):
            return token
        if issuer is None:
            return self._unknown_issuer(token.issuer)
        return self._check_token(issuer, token, digest, audiences, now)

    def _check_token(
        self, issuer: _Issuer, token: JsonWebToken, digest: bytes, audiences: Collection[str], now: float
    ) -> Identity | Refused | Unavailable | Waits:
        algorithms = issuer.settings.algorithms
        if token.algorithm not in algorithms:
            return Refused(f"its algorithm is none of those of its issuer: {', '.join(algorithms)}")
        accepted = issuer.rules.judge(token.claims, "jwt", now)
        if isinstance(accepted, Refused):
            return accepted
        if not is_for(accepted, audiences):
            return issuer.rules.refuse_audience(accepted, audiences)
        asked = issuer.documents.ask(now)
        if asked is not None:
            return asked
        keys = issuer.keys.candidates(token)
        if isinstance(keys, Refused):
            return issuer.keys.doubt(now) or keys
        if any(self._verify(key, token.algorithm, token.message, token.signature) for key in keys):
            self._keep(digest, accepted, issuer, now + KEPT_S)
            return accepted.identity
        answer: Refused | Unavailable | Waits
        if keys and token.kid is not None:
            answer = issuer.keys.doubt(now) or Refused("its signature is wrong")
        else:
            answer = issuer.keys.miss(token, digest, now)
        if isinstance(answer, Refused):
            self._deny(digest, answer, now + REFUSED_KEPT_S)
        elif isinstance(answer, Unavailable):
            self._deny(digest, answer, now + answer.retry_after_s)
        return answer

    def _introspect(self, issuer: _Issuer, text: str, digest: bytes, now: float) -> Refused | Unavailable | Waits:
        if len(text) > TOKEN_MAX_CHARS:
            return Refused(f"it has {len(text)} characters, expected {TOKEN_MAX_CHARS} at most")
        if issuer.needs_documents:
            asked = issuer.documents.ask(now)
            if asked is not None:
                return asked
        settings = issuer.settings.introspection
        assert settings is not None
        if digest not in self._asked:
            if len(self._asked) >= ASKED_MAX:
                self._asked = {key: at for key, at in self._asked.items() if 0 <= now - at < ASKED_S}
            if len(self._asked) >= ASKED_MAX:
                return Unavailable(1, f"{shown(issuer.settings.url)} is being asked about too many tokens")
            self._asked[digest] = now
        url = settings.url or issuer.documents.metadata.introspection_url
        return Waits(introspection_request(issuer.settings.url, url, settings, text))

    def _end_attempt(self, issuer: _Issuer, keys_before: tuple[Key, ...]) -> None:
        issuer.keys.end_attempt()
        if issuer.documents.keys != keys_before:
            self.epoch += 1
            self._accepted.clear()
            self._denied.clear()

    def _keep(self, digest: bytes, accepted: Accepted, issuer: _Issuer, until: float) -> None:
        expires_at = accepted.identity.expires_at
        self._accepted.pop(digest, None)  # what is written anew stands last
        if len(self._accepted) >= KEPT_MAX:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[digest] = _Kept(until if expires_at is None else min(until, expires_at), accepted, issuer.rules)

    def _deny(self, digest: bytes, answer: Refused | Unavailable, until: float) -> None:
        self._accepted.pop(digest, None)
        self._denied.pop(digest, None)
        if len(self._denied) >= KEPT_MAX:
            del self._denied[next(iter(self._denied))]
        self._denied[digest] = (until, answer)

    def _unknown_issuer(self, named: str) -> Refused:
        for issuer in self._issuers.values():
            url = issuer.settings.url
            if url.removesuffix("/") == named.removesuffix("/"):
                both = f"its issuer is {shown(named)}, {issuer.place}.url is {shown(url)}"
                return Refused(f"{both}: both must be the same, character by character")
        return Refused(f"its issuer {shown(named)} is none of auth.issuers")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _check_settings(settings: Sequence[IssuerSettings]) -> None:
    urls = [one.url for one in settings]
    if len(set(urls)) != len(urls):
        raise LocalProtocolError("got two issuers of one URL, expected one each")
    if sum(one.introspection is not None for one in settings) > 1:
        raise LocalProtocolError("got two issuers with introspection, expected one: it is asked about all other tokens")
    for one in settings:
        parts = urllib.parse.urlsplit(one.url)
        if parts.scheme not in ("https", "http") or not parts.netloc or parts.query or parts.fragment or "|" in one.url:
            raise LocalProtocolError(f"got the issuer {one.url}, expected an https URL without query and fragment")
        unknown = [name for name in one.algorithms if name not in ALGORITHMS]
        if unknown or not one.algorithms:
            raise LocalProtocolError(f"got algorithms {unknown} of {one.url}, expected some of {', '.join(ALGORITHMS)}")
