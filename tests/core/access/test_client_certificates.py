"""Tests of callers that are recognised by the certificate of their client."""

from __future__ import annotations

import itertools
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.access.client_certificates import NAME_MAX_CHARS, is_name, name_of
from isthmus.core.access.gate import Denied, Gate, GateSettings, TrustedProxy
from isthmus.core.access.identity import ANONYMOUS, ClientCertificate, Identity, Peer
from isthmus.core.access.static_tokens import StaticToken, digest_of, new_token

TEXT = new_token(lambda size: bytes(size))
TOKENS = (StaticToken("ci", digest_of(TEXT)),)
PROXY = TrustedProxy((ip_network("10.0.0.0/8"),), False, b"x-user")
ENDS_AT = 1000.0
CERTIFICATE = ClientCertificate(ENDS_AT, dns_names=("ci.example.com",))

Headers = tuple[tuple[bytes, bytes], ...]


def certificate(**names: tuple[str, ...]) -> ClientCertificate:
    return ClientCertificate(ENDS_AT, **names)


def asked(
    certificate: ClientCertificate | None, headers: Headers = (), host: str = "203.0.113.9", **settings: object
) -> Identity | Denied:
    peer = Peer(host, is_secure=True, certificate=certificate)
    settings = {"certificates": {}} | settings
    found = Gate(GateSettings(**settings)).identify(headers, peer, (), 0.0)  # type: ignore[arg-type]
    assert isinstance(found, Identity | Denied)
    return found


@pytest.mark.parametrize(
    ("names", "principal"),
    [
        ({"uris": ("spiffe://example.com/ci",)}, "cert:spiffe://example.com/ci"),
        ({"uris": ("urn:a", "urn:b"), "dns_names": ("a",), "emails": ("a@b",)}, "cert:urn:a"),
        ({"dns_names": ("CI.Example.com", "other"), "emails": ("a@b",)}, "cert:ci.example.com"),
        ({"emails": ("Alice@example.com",)}, "cert:Alice@example.com"),
    ],
)
def test_the_first_name_of_the_first_kind_counts(names: dict[str, tuple[str, ...]], principal: str) -> None:
    identity = Identity(principal, expires_at=ENDS_AT, via="certificate")
    assert asked(certificate(**names)) == identity


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"uris": ("",), "dns_names": ("a",)},
        {"uris": ("no-scheme",), "dns_names": ("a",)},
        {"uris": ("urn:a\x00b",)},
        {"uris": ("urn:\N{LATIN SMALL LETTER E WITH ACUTE}",)},
        {"uris": ("urn:" + "a" * NAME_MAX_CHARS,)},
        {"dns_names": ("*.example.com",), "emails": ("a@b",)},
        {"dns_names": ("spiffe://example.com/ci",)},
        {"dns_names": ("alice@example.com",)},
        {"dns_names": ("a" * (NAME_MAX_CHARS + 1),)},
        {"emails": ("ci.example.com",)},
        {"emails": ("urn:a@b",)},
        {"emails": ("a@b@c",)},
        {"emails": ("a b@c",)},
    ],
)
def test_an_unusable_name_is_refused(names: dict[str, tuple[str, ...]]) -> None:
    """No name of another kind is tried then, and the caller does not become anonymous."""
    found = asked(certificate(**names), allows_anonymous=True)
    assert isinstance(found, Denied)
    assert (found.status, "no usable URI" in found.reason) == (401, True)


TEXTS = st.text(alphabet=st.sampled_from("aA0.-_@:/*\x00 \u00e9\n"), max_size=12) | st.text(max_size=20)
LISTS = st.lists(TEXTS, max_size=2).map(tuple)


@given(uris=LISTS, dns_names=LISTS, emails=LISTS)
def test_no_name_is_taken_for_one_of_another_kind(
    uris: tuple[str, ...], dns_names: tuple[str, ...], emails: tuple[str, ...]
) -> None:
    """A name says of which kind it is, is one that the certificate has, and is fit for a log."""
    name = name_of(certificate(uris=uris, dns_names=dns_names, emails=emails))
    if name is None:
        return
    assert name.isascii() and name.isprintable() and " " not in name
    assert is_name(name)
    kind = uris if ":" in name else emails if "@" in name else dns_names
    assert kind is (uris or dns_names or emails)
    assert name in (kind[0], kind[0].lower())


@given(uris=LISTS, dns_names=LISTS, emails=LISTS, subject=TEXTS, at=st.floats(0, 2 * ENDS_AT))
def test_a_certificate_is_somebody_until_it_ends(
    uris: tuple[str, ...], dns_names: tuple[str, ...], emails: tuple[str, ...], subject: str, at: float
) -> None:
    shown = certificate(uris=uris, dns_names=dns_names, emails=emails)
    gate = Gate(GateSettings(certificates={subject: frozenset({"admin"})}, allows_anonymous=True))
    found = gate.identify((), Peer(is_secure=True, certificate=shown), (), at)
    name = name_of(shown)
    assert isinstance(found, Identity) == (name is not None and at < ENDS_AT)
    if isinstance(found, Identity):
        assert found.principal == f"cert:{name}"
        assert found.groups == (frozenset({"admin"}) if name == subject else frozenset())


def test_an_expired_certificate_names_nobody() -> None:
    gate = Gate(GateSettings(certificates={}, allows_anonymous=True))
    peer = Peer(is_secure=True, certificate=CERTIFICATE)
    found = gate.identify((), peer, (), ENDS_AT - 1)
    assert isinstance(found, Identity)
    assert gate.still_holds(found, ENDS_AT - 1)
    assert not gate.still_holds(found, ENDS_AT)
    assert gate.identify((), peer, (), ENDS_AT) == Denied("the client certificate has expired")


def test_streams_go_on_with_a_renewed_certificate() -> None:
    gate = Gate(GateSettings(certificates={}))
    old = gate.identify((), Peer(certificate=CERTIFICATE), (), 0.0)
    renewed = ClientCertificate(2 * ENDS_AT, dns_names=CERTIFICATE.dns_names)
    gate.identify((), Peer(certificate=renewed), (), 0.0)
    assert isinstance(old, Identity)
    assert gate.still_holds(old, ENDS_AT)
    assert not gate.still_holds(old, 2 * ENDS_AT)


def test_a_certificate_counts_only_where_certificates_name_callers() -> None:
    assert asked(CERTIFICATE, certificates=None) == Denied()
    assert asked(CERTIFICATE, certificates=None, allows_anonymous=True) is ANONYMOUS
    assert asked(None) == Denied()


@pytest.mark.parametrize(
    ("sends_user", "sends_token", "has_certificate"), list(itertools.product((False, True), repeat=3))
)
@pytest.mark.parametrize("is_proxy", [False, True])
def test_the_order_of_credentials(sends_user: bool, sends_token: bool, has_certificate: bool, is_proxy: bool) -> None:
    """The header of a trusted proxy, then the token, then the certificate. That of a proxy names the proxy, so it is no
    credential of the caller behind it."""
    headers: Headers = ((b"x-user", b"alice"),) if sends_user else ()
    headers += ((b"authorization", f"Bearer {TEXT}".encode()),) if sends_token else ()
    found = asked(
        CERTIFICATE if has_certificate else None,
        headers,
        "10.1.2.3" if is_proxy else "203.0.113.9",
        proxy=PROXY,
        tokens=TOKENS,
    )
    if sends_user:
        expected = "proxy:alice" if is_proxy else ""
    elif sends_token:
        expected = "token:ci"
    else:
        expected = "cert:ci.example.com" if has_certificate and not is_proxy else ""
    assert (found.principal if isinstance(found, Identity) else "") == expected


def test_a_refused_token_is_not_replaced_by_a_certificate() -> None:
    headers = ((b"authorization", b"Bearer wrong"),)
    assert isinstance(asked(CERTIFICATE, headers, tokens=TOKENS), Denied)
    passed_on = asked(CERTIFICATE, headers)
    assert isinstance(passed_on, Identity), "where no token is known, Authorization is for the server"


def test_what_is_asked_for() -> None:
    assert Gate(GateSettings(certificates={})).expected == "a client certificate"
    both = "a client certificate, or the header Authorization: Bearer TOKEN"
    assert Gate(GateSettings(certificates={}, tokens=TOKENS)).expected == both
    assert Gate(GateSettings(tokens=TOKENS)).expected == "the header Authorization: Bearer TOKEN"
