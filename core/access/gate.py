"""The gate: who a request is from, by its head. Nothing of a request is looked at before the gate has let it pass.

The ways of identifying a caller stand beside each other, and the one whose form a request has decides about it. A token
that one of them refuses is not shown to the next. The order is: a header of a proxy that is trusted, a bearer token,
the certificate of the client, the user of a Unix socket, and nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from ..base.errors import LocalProtocolError
from ..base.timestamps import format_time
from .client_certificates import from_certificate
from .identity import ANONYMOUS, Identity, Peer
from .issuer_answers import Refused, Unavailable, Waits
from .issuers import Issuers
from .json_web_tokens import NAME_MAX_CHARS
from .networks import Network, is_peer_within
from .revocations import Changed, Revocation, Revocations
from .static_tokens import StaticToken, StaticTokens

UNIX: Final = "unix"
"""Stands for the peers of Unix sockets among those of `TrustedProxy`."""
NAME_MAX_BYTES: Final = 512
"""The longest name of a user, and list of groups, in a proxy's header. At it: 401."""

PRINCIPALS_MAX: Final = 10_000
"""Principals of which it is remembered until when they were let in, and with which token. At it: the oldest is
forgotten, and the streams of that principal end with the tokens that they were opened with."""

ISSUED: Final = frozenset({"jwt", "introspection"})
"""The ways of identifying a caller by the token of an issuer (`Identity.via`)."""
_NAMED_MAX: Final = 16

Headers = tuple[tuple[bytes, bytes], ...]


class TrustedProxy(msgspec.Struct, frozen=True):
    """A proxy in front that has identified the caller, and says so in headers.

    Attributes:
        networks: the addresses of the proxies.
        has_unix: peers of Unix sockets are proxies too.
        user: the header with the user's name, in lower case.
        groups: the header with the user's groups, separated by commas, in lower case; b"": none.
    """

    networks: tuple[Network, ...]
    has_unix: bool
    user: bytes
    groups: bytes = b""


class GateSettings(msgspec.Struct, frozen=True):
    """The ways in which callers identify themselves.

    Attributes:
        unix_peers: a peer of a Unix socket is its user: the principal is `uid:` and the number.
        certificates: a client is who its certificate names. The groups of each name; None: certificates name nobody.
        allows_anonymous: callers without credentials are let in, as the anonymous principal "".
    """

    tokens: tuple[StaticToken, ...] = ()
    unix_peers: bool = False
    certificates: dict[str, frozenset[str]] | None = None
    proxy: TrustedProxy | None = None
    allows_anonymous: bool = False
    lets_links_in: bool = True
    """A signed link of an upload or download is enough: a request with one needs no other credential."""
    keeps_tokens: bool = False
    """The latest token of each caller is kept in memory, to be exchanged for others (RFC 8693)."""


class Denied(msgspec.Struct, frozen=True):
    """The answer to a request that the gate does not let in.

    Attributes:
        status: 401, or 400 for headers of which nobody can say which one counts.
        reason: what is wrong with the credentials, for people; "" if there are none.
    """

    reason: str = ""
    status: int = 401


Found = Identity | Denied | Unavailable | Waits
"""The answers of the gate. `Unavailable`: nobody can say now. `Waits`: the driver sends a request and asks again, see
`issuers`."""


class Gate:
    """Decides who a request is from.

    Args:
        issuers: recognises tokens of authorization servers; None: there are none.
        revoked: the revocations of earlier runs.

    Attributes:
        lets_links_in: as in the settings.
        issuers: as given.
    """

    def __init__(
        self, settings: GateSettings, issuers: Issuers | None = None, revoked: Iterable[Revocation] = ()
    ) -> None:
        self._settings = settings
        self._revocations = Revocations(revoked)
        self._tokens = StaticTokens(settings.tokens)
        self.lets_links_in = settings.lets_links_in
        self.issuers = issuers
        self._let_in: dict[str, float] = {}  # by principal: until when its tokens hold
        self._shown: dict[str, str] = {}  # by principal: the latest token of an issuer

    @property
    def expected(self) -> str:
        """The credentials that a caller without any is asked for."""
        if self._settings.certificates is None:
            return "the header Authorization: Bearer TOKEN"
        has_tokens = bool(self._tokens) or self.issuers is not None
        return f"a client certificate{', or the header Authorization: Bearer TOKEN' if has_tokens else ''}"

    @property
    def epoch(self) -> int:
        """A number that grows when identities that were established before may no longer hold."""
        return self._revocations.epoch + (0 if self.issuers is None else self.issuers.epoch)

    def still_holds(self, identity: Identity, now: float) -> bool:
        """True if a stream that a caller has opened may go on: its token was not revoked, and a token of the caller
        that was seen holds."""
        if self._revocation_of(identity) is not None:
            return False
        if identity.expires_at is None:
            return True
        return now < max(identity.expires_at, self._let_in.get(identity.principal, 0.0))

    def identify(self, headers: Headers, peer: Peer, audiences: Collection[str], now: float) -> Found:
        """Returns the identity of the caller, the refusal, or what has to be known first.

        What was let in is remembered: it prolongs the caller's streams.

        Args:
            headers: names in lower case.
            audiences: the URLs of the endpoint, one of which a token of an issuer must be for.
            now: in Unix seconds.
        """
        found = self._identify(headers, peer, audiences, now)
        if isinstance(found, Identity) and (revocation := self._revocation_of(found)) is not None:
            return Denied(f"it was revoked at {format_time(revocation.at_unix)}")
        if isinstance(found, Identity) and found.expires_at is not None:
            self._remember(found.principal, found.expires_at)
        return found

    def revoke(self, principal: str, now: float) -> Changed:
        """Revokes the credentials that a caller has had so far. From now on they are refused.

        Args:
            now: in Unix seconds.

        Returns:
            What is to be kept for the next run, and what not any more.

        Raises:
            LocalProtocolError: the caller has no credentials that could be revoked; the message says why.
        """
        identities = [token.identity for token in self._settings.tokens]
        own = [each.token_id for each in identities if each.principal == principal]
        if own:
            changed = self._revocations.revoke_tokens(principal, own, {each.token_id for each in identities}, now)
        elif any(_names_caller(principal, f"jwt:{url}|") for url in self._urls):
            changed = self._revocations.revoke_caller(principal, now)
        else:
            known = sorted({each.principal for each in identities})[:_NAMED_MAX]
            known += [f"jwt:{url}|NAME" for url in self._urls]
            right = f"expected one of {', '.join(known)}" if known else "and no tokens are accepted here"
            raise LocalProtocolError(f"got the caller {principal[:200]!r}, {right}")
        self._let_in.pop(principal, None)
        self._shown.pop(principal, None)
        return changed

    def receive_revoked(self, revocations: Iterable[Revocation]) -> bool:
        """Takes in revocations that other processes have made. Returns True if one of them was not known: a stream that
        a caller has opened may have to end."""
        configured = {token.identity.token_id for token in self._settings.tokens}
        new = [each for each in revocations if self._revocations.receive(each, configured)]
        for each in new:
            self._let_in.pop(each.principal, None)
            self._shown.pop(each.principal, None)
        return bool(new)

    def token_of(self, principal: str) -> str | None:
        """Returns the latest token that a caller has shown, if `keeps_tokens` is set."""
        return self._shown.get(principal)

    @property
    def _urls(self) -> tuple[str, ...]:
        return () if self.issuers is None else self.issuers.urls

    def _revocation_of(self, identity: Identity) -> Revocation | None:
        if identity.via == "token":
            return self._revocations.find_token(identity.token_id)
        return self._revocations.find_issued(identity) if identity.via in ISSUED else None

    def _remember(self, principal: str, expires_at: float) -> None:
        latest = max(expires_at, self._let_in.pop(principal, 0.0))
        if len(self._let_in) >= PRINCIPALS_MAX:
            del self._let_in[next(iter(self._let_in))]
        self._let_in[principal] = latest  # what was seen last stands last

    def _keep(self, principal: str, token: str) -> None:
        self._shown.pop(principal, None)
        if len(self._shown) >= PRINCIPALS_MAX:
            del self._shown[next(iter(self._shown))]
        self._shown[principal] = token

    def _identify(self, headers: Headers, peer: Peer, audiences: Collection[str], now: float) -> Found:
        settings = self._settings
        if settings.proxy is not None:
            found = _from_proxy(settings.proxy, headers, peer)
            if found is not None:
                return found
        if self._tokens or self.issuers is not None:
            lines = [value for name, value in headers if name == b"authorization"]
            if len(lines) > 1:  # RFC 9110, 5.3: only lists may be sent in several lines
                return Denied(f"got {len(lines)} headers Authorization, expected one", 400)
            if lines:
                return self._from_token(lines[0], audiences, now)
        if settings.certificates is not None and peer.certificate is not None:
            if settings.proxy is None or not _is_trusted(settings.proxy, peer):  # else it names the proxy, not a caller
                named = from_certificate(peer.certificate, settings.certificates, now)
                return Denied(named) if isinstance(named, str) else named
        if settings.unix_peers and peer.uid is not None:
            return Identity(f"uid:{peer.uid}", via="unix")
        return ANONYMOUS if settings.allows_anonymous else Denied()

    def _from_token(self, line: bytes, audiences: Collection[str], now: float) -> Found:
        scheme, _, token = line.decode("latin-1").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Denied("got an Authorization that is no Bearer token, expected Authorization: Bearer TOKEN")
        found = self._tokens.find(token, now)
        if isinstance(found, Identity):
            return found
        if found is None and self.issuers is not None and self.issuers.names(token):
            answer = self.issuers.check(token, audiences, now)
            if isinstance(answer, Identity) and self._settings.keeps_tokens:
                self._keep(answer.principal, token)
            return Denied(answer.reason) if isinstance(answer, Refused) else answer
        return Denied(found or "it has the form of no token that is known here")


def _names_caller(principal: str, prefix: str) -> bool:
    """True if a text is the name of a caller, as `ClaimRules` makes it."""
    name = principal.removeprefix(prefix)
    return principal.startswith(prefix) and 0 < len(name) <= NAME_MAX_CHARS and name.isprintable()


def _from_proxy(proxy: TrustedProxy, headers: Headers, peer: Peer) -> Identity | Denied | None:
    users = [value for name, value in headers if name == proxy.user]
    groups = [value for name, value in headers if name == proxy.groups] if proxy.groups else []
    if not users and not groups:
        return None
    shown = proxy.user.decode()
    if not _is_trusted(proxy, peer):
        return Denied(
            f"got the header {shown} from {peer.host or 'a Unix socket'}, which is no proxy of auth.proxy.peers"
        )
    if len(users) != 1 or len(groups) > 1:
        return Denied(f"got {len(users)} headers {shown} and {len(groups)} with groups, expected one each", 400)
    name = users[0].decode("utf-8", "replace").strip()
    if not name or any(len(value) > NAME_MAX_BYTES for value in (*users, *groups)) or not name.isprintable():
        return Denied(f"got an unusable {shown}, expected the name of a user")
    listed = groups[0].decode("utf-8", "replace") if groups else ""
    found = frozenset(group.strip() for group in listed.split(",") if group.strip())
    return Identity(f"proxy:{name}", groups=found, via="proxy")


def _is_trusted(proxy: TrustedProxy, peer: Peer) -> bool:
    return is_peer_within(peer, proxy.networks, has_unix=proxy.has_unix)
