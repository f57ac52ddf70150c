"""Tests of the gate: who a request is from, by its head."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.challenges import bearer_challenge
from isthmus.core.access.gate import NAME_MAX_BYTES, Denied, Gate, GateSettings, TrustedProxy
from isthmus.core.access.identity import ANONYMOUS, Identity, Peer
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token

TEXT = new_token(lambda size: bytes(size))
TOKENS = (StaticToken("ci", digest_of(TEXT)), StaticToken("old", digest_of("a secret of another form")))
PROXY = TrustedProxy((ip_network("10.0.0.0/8"), ip_network("fd00::/8")), True, b"x-user", b"x-groups")
NEAR, FAR, SOCKET = Peer("10.1.2.3"), Peer("203.0.113.9"), Peer("", 1000, is_unix=True)

Headers = tuple[tuple[bytes, bytes], ...]


def shown(token: str, scheme: str = "Bearer") -> Headers:
    return ((b"authorization", f"{scheme} {token}".encode()),)


def asked(headers: Headers = (), peer: Peer = FAR, **settings: object) -> Identity | Denied:
    return Gate(GateSettings(**settings)).identify(headers, peer, (), 0.0)  # type: ignore[arg-type]


def test_without_credentials_nobody_is_let_in_unless_anonymous_callers_are() -> None:
    assert asked(tokens=TOKENS) == Denied()
    assert asked() == Denied()
    assert asked(allows_anonymous=True) is ANONYMOUS
    assert asked(tokens=TOKENS, allows_anonymous=True) is ANONYMOUS


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_a_token_names_its_caller(scheme: str) -> None:
    for text, token in zip((TEXT, "a secret of another form"), TOKENS, strict=True):
        identity = Identity(f"token:{token.name}", via="token", token_id=token.sha256.hex())
        assert asked(shown(text, scheme), tokens=TOKENS) == identity


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (shown(TEXT[:-2]), "it is cut off or mistyped"),
        (shown("eyJhbGciOiJub25lIn0.e30."), "it has the form of no token that is known here"),
        (shown(TEXT, "Basic"), "no Bearer token"),
        (shown("", "Bearer"), "no Bearer token"),
        (((b"authorization", TEXT.encode()),), "no Bearer token"),
        (((b"authorization", b"Bearer \xff\xfe"),), "the form of no token"),
    ],
)
def test_a_token_that_is_refused_is_not_taken_for_none(headers: Headers, reason: str) -> None:
    """No other way of identifying callers is tried then, and the caller does not become anonymous."""
    found = asked(headers, SOCKET, tokens=TOKENS, unix_peers=True, allows_anonymous=True)
    assert isinstance(found, Denied)
    assert found.status == 401
    assert reason in found.reason


def test_two_authorization_headers_are_refused() -> None:
    """Two readers could each go by a different one (RFC 9110, 5.3)."""
    found = asked(shown(TEXT) * 2, tokens=TOKENS)
    assert isinstance(found, Denied)
    assert (found.status, found.reason) == (400, "got 2 headers Authorization, expected one")


def test_where_no_token_is_known_authorization_is_for_the_server() -> None:
    assert asked(shown("what the server knows"), SOCKET, unix_peers=True) == Identity("uid:1000", via="unix")
    assert asked(shown("what the server knows"), allows_anonymous=True) is ANONYMOUS


def test_a_peer_of_a_unix_socket_is_its_user() -> None:
    assert asked(peer=SOCKET, unix_peers=True) == Identity("uid:1000", via="unix")
    assert asked(peer=Peer(), unix_peers=True) == Denied(), "the system does not tell"
    assert asked(peer=SOCKET, tokens=TOKENS) == Denied(), "it is not asked for"


@pytest.mark.parametrize("peer", [NEAR, SOCKET, Peer("::ffff:10.1.2.3"), Peer("fd00::1%eth0")])
def test_a_trusted_proxy_names_the_caller(peer: Peer) -> None:
    headers = ((b"x-user", b"alice"), (b"x-groups", b"admin, team a,,"))
    identity = Identity("proxy:alice", groups=frozenset({"admin", "team a"}), via="proxy")
    assert asked(headers, peer, proxy=PROXY) == identity
    assert asked((*headers, *shown(TEXT)), peer, proxy=PROXY, tokens=TOKENS) == identity


@pytest.mark.parametrize("name", [b"x-user", b"x-groups"])
@pytest.mark.parametrize("peer", [FAR, Peer("::1"), Peer("no address"), Peer()])
def test_a_header_of_a_stranger_is_refused(name: bytes, peer: Peer) -> None:
    """A peer whose address is not known, as one that has hung up, is a stranger too."""
    found = asked(((name, b"alice"),), peer, proxy=PROXY, allows_anonymous=True)
    assert isinstance(found, Denied)
    assert (found.status, "auth.proxy.peers" in found.reason) == (401, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (((b"x-user", b"alice"), (b"x-user", b"bob")), 400),
        (((b"x-user", b"alice"), (b"x-groups", b"a"), (b"x-groups", b"admin")), 400),
        (((b"x-groups", b"admin"),), 400),
        (((b"x-user", b""),), 401),
        (((b"x-user", b"a\x00b"),), 401),
        (((b"x-user", b"a" * (NAME_MAX_BYTES + 1)),), 401),
        (((b"x-user", b"a"), (b"x-groups", b"a" * (NAME_MAX_BYTES + 1))), 401),
    ],
)
def test_an_unusable_header_of_a_proxy_is_refused(headers: Headers, status: int) -> None:
    """Each is used at its largest size (`NAME_MAX_BYTES`), and no larger."""
    largest = ((b"x-user", b"a" * NAME_MAX_BYTES), (b"x-groups", b"a" * NAME_MAX_BYTES))
    assert isinstance(asked(largest, NEAR, proxy=PROXY), Identity)
    found = asked(headers, NEAR, proxy=PROXY, allows_anonymous=True)
    assert isinstance(found, Denied)
    assert found.status == status


def test_a_proxy_that_names_nobody_does_not_vouch_for_the_caller() -> None:
    assert asked((), NEAR, proxy=PROXY) == Denied()


@given(st.text(), st.text())
def test_a_challenge_holds_nothing_that_would_end_it(description: str, scope: str) -> None:
    """RFC 6750, 3: descriptions and scopes have no quotation marks and no backslashes."""
    challenge = bearer_challenge(error="invalid_token", description=description, scopes=[scope]).decode("ascii")
    assert challenge.isprintable()
    assert "\\" not in challenge
    assert challenge.count('"') == 2 * (2 + bool(description) + 1)


def test_a_challenge_without_credentials_names_no_error() -> None:
    """RFC 6750, 3.1."""
    assert bearer_challenge() == b'Bearer realm="isthmus"'
    assert bearer_challenge(metadata_url="https://h/.well-known/x", scopes=["b", "a"]) == (
        b'Bearer realm="isthmus", resource_metadata="https://h/.well-known/x", scope="a b"'
    )


def test_streams_go_on_while_a_token_of_their_caller_holds() -> None:
    text = new_token(lambda size: b"y" * size)
    tokens = (StaticToken("ci", digest_of(TEXT), expires_at=10.0), StaticToken("ci", digest_of(text), expires_at=20.0))
    gate = Gate(GateSettings(tokens=tokens))
    short = gate.identify(shown(TEXT), FAR, (), 0.0)
    assert isinstance(short, Identity)
    assert gate.still_holds(short, 9.0)
    assert not gate.still_holds(short, 10.0)
    gate.identify(shown(text), FAR, (), 0.0)
    assert gate.still_holds(short, 19.0)
    assert not gate.still_holds(short, 20.0)
    assert gate.still_holds(ANONYMOUS, 1e9)


def test_the_principal_seen_first_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams of that principal end with the tokens that they were opened with."""
    monkeypatch.setattr("isthmus.core.access.gate.PRINCIPALS_MAX", 2)
    texts = [new_token(lambda size, byte=byte: bytes([byte]) * size) for byte in range(6)]
    tokens = [StaticToken(f"{i // 2}", digest_of(text), expires_at=10.0 + i % 2) for i, text in enumerate(texts)]
    gate = Gate(GateSettings(tokens=tuple(tokens)))
    seen = [gate.identify(shown(text), FAR, (), 0.0) for text in texts]
    first = [each for each in seen[::2] if isinstance(each, Identity)]
    assert [gate.still_holds(each, 10.5) for each in first] == [False, True, True]
