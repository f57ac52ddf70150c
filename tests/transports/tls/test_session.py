"""Tests of the server's side of TLS, without sockets: a client of the standard library at the other end."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from issuing import SERVERS, Authority, client_context, server_context
from isthmus.core.access.identity import ClientCertificate
from isthmus.transports.tls.session import TlsFailed, TlsSession

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Client:
    """A client, and the session that it talks to."""

    def __init__(self, session: TlsSession, context: ssl.SSLContext, resumed: ssl.SSLSession | None = None) -> None:
        self.session = session
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost", session=resumed)

    def shake_hands(self) -> bytes:
        """Returns what the session has received with the last step."""
        received = b""
        for _ in range(3):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            received += self.session.receive(self._out.read())
            self._in.write(self.session.take())
        return received

    def say(self, data: bytes) -> bytes:
        """Encrypts `data` for the session."""
        self.tls.write(data)
        return self._out.read()

    def close(self) -> bytes:
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass
        return self._out.read()

    def hear(self, size: int = 1 << 20) -> bytes:
        self._in.write(self.session.take())
        heard = b""
        while True:
            try:
                piece = self.tls.read(size)
            except ssl.SSLWantReadError:
                return heard
            except ssl.SSLZeroReturnError:  # after its own end
                piece = b""
            if not piece:
                return heard + b"<end>"
            heard += piece


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("issued"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.server()


def pair(authority: Authority, certificate: Path, version: ssl.TLSVersion = VERSIONS[1]) -> Client:
    context = client_context(authority.path)
    context.minimum_version = context.maximum_version = version
    client = Client(TlsSession(server_context(certificate)), context)
    assert client.shake_hands() == b""
    assert client.session.is_open
    return client


@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cutting_never_shows(authority: Authority, certificate: Path, data: st.DataObject) -> None:
    """All that was sent arrives, however its bytes were cut up, in either direction."""
    client = pair(authority, certificate, data.draw(st.sampled_from(VERSIONS)))
    texts = data.draw(st.lists(st.binary(min_size=1, max_size=40_000), max_size=3))
    sent = b"".join(map(client.say, texts)) + client.close()
    received = b""
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        received += client.session.receive(sent[:size])
        sent = sent[size:]
    assert received == b"".join(texts)
    assert client.session.is_ended
    for text in texts:
        client.session.send(text)
    client.session.close()
    assert client.hear() == b"".join(texts) + b"<end>"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_comes_with_the_last_step_of_the_handshake_is_received(
    authority: Authority, certificate: Path, version: ssl.TLSVersion
) -> None:
    context = client_context(authority.path)
    context.minimum_version = context.maximum_version = version
    session = TlsSession(server_context(certificate))
    client = Client(session, context)
    received = b""
    said = b""
    while not received:
        try:
            client.tls.do_handshake()
            said = said or client.say(b"hello")
            received += session.receive(said)
        except ssl.SSLWantReadError:
            received += session.receive(client._out.read())
        client._in.write(session.take())
    assert received == b"hello"


@pytest.mark.parametrize("version", VERSIONS)
def test_either_side_may_end_first(authority: Authority, certificate: Path, version: ssl.TLSVersion) -> None:
    """The end of one side is no end of the other."""
    client = pair(authority, certificate, version)
    client.session.close()
    client.session.close()
    client.session.send(b"nothing follows the end")
    assert client.hear() == b"<end>"
    assert client.session.receive(client.say(b"still")) == b"still"
    assert client.session.receive(client.close()) == b""
    assert client.session.is_ended
    client = pair(authority, certificate, version)
    assert client.session.receive(client.say(b"last") + client.close()) == b"last"
    client.session.send(b"the reply")
    client.session.close()
    assert client.hear() == b"the reply<end>"


def test_nothing_is_kept_of_what_follows_the_end(authority: Authority, certificate: Path) -> None:
    client = pair(authority, certificate)
    client.session.receive(client.close())
    for _ in range(3):
        assert client.session.receive(b"x" * 100) == b""
    assert not client.session._incoming.pending


def test_a_connection_that_is_cut_off_looks_so(authority: Authority, certificate: Path) -> None:
    client = pair(authority, certificate)
    client.session.send(b"a part")
    client.session.cut()
    client.session.close()
    assert client.hear() == b"a part"


@given(st.binary(min_size=1, max_size=600))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_fails_or_waits(certificate: Path, garbage: bytes) -> None:
    """No other error is raised, and nothing of it is taken for what a client has sent."""
    session = TlsSession(server_context(certificate))
    with contextlib.suppress(TlsFailed):
        assert session.receive(garbage) == b""
    assert not session.is_open


@pytest.mark.parametrize("at", [0, 5, 30, -1])
def test_a_record_that_was_changed_on_the_way_is_refused(authority: Authority, certificate: Path, at: int) -> None:
    client = pair(authority, certificate)
    sent = bytearray(client.say(b"to be trusted" * 4))
    sent[at] ^= 1
    with pytest.raises(TlsFailed):
        assert client.session.receive(bytes(sent)) == b"", "nothing is given out before it is verified"
        client.session.receive(bytes(2000))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it spoke plain HTTP, expected https:// in its URL"),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", "it took this listener for a proxy"),
        (b"SSH-2.0-x\r\n" + bytes(20), "what it sent is not TLS"),
    ],
)
def test_what_is_no_tls_is_named(certificate: Path, sent: bytes, reason: str) -> None:
    with pytest.raises(TlsFailed, match=f"^{reason}$"):
        TlsSession(server_context(certificate)).receive(sent)


def test_a_client_that_does_not_trust_the_certificate_says_so(certificate: Path) -> None:
    client = Client(TlsSession(server_context(certificate)), ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        client.shake_hands()
    with pytest.raises(TlsFailed, match="it does not trust the certificate of this listener"):
        client.session.receive(client._out.read())


def test_an_old_version_is_refused(authority: Authority, certificate: Path) -> None:
    server = server_context(certificate)
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    context = client_context(authority.path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(TlsFailed, match=r"which needs TLS 1.2 or 1.3$"):
        Client(TlsSession(server), context).shake_hands()


# --- Certificates of clients ----------------------------------------------------------------------------------------


def shown(authority: Authority, certificate: Path, client: Path | None, *, required: bool = False) -> TlsSession:
    server = server_context(certificate, authority.path, required=required)
    talk = Client(TlsSession(server), client_context(authority.path, client))
    talk.shake_hands()
    return talk.session


def test_the_names_of_a_certificate_are_listed_by_kind(authority: Authority, certificate: Path) -> None:
    issued = authority.issue(
        "alice",
        x509.RFC822Name("alice@example.com"),
        x509.DNSName("one.example.com"),
        x509.UniformResourceIdentifier("spiffe://example.com/alice"),
        x509.DNSName("two.example.com"),
    )
    ends = x509.load_pem_x509_certificate(issued.read_bytes()).not_valid_after_utc.timestamp()
    assert shown(authority, certificate, issued).certificate == ClientCertificate(
        ends,
        uris=("spiffe://example.com/alice",),
        dns_names=("one.example.com", "two.example.com"),
        emails=("alice@example.com",),
    )
    nameless = shown(authority, certificate, authority.issue("only-a-common-name")).certificate
    assert nameless is not None
    assert (nameless.uris, nameless.dns_names, nameless.emails) == ((), (), ())


def test_a_client_without_a_certificate_is_nobody_or_refused(authority: Authority, certificate: Path) -> None:
    assert shown(authority, certificate, None).certificate is None
    with pytest.raises(TlsFailed, match=r"it has shown no certificate, .* auth.client_certificates.ca_file"):
        shown(authority, certificate, None, required=True)


def test_a_certificate_that_does_not_hold_is_refused(authority: Authority, certificate: Path, tmp_path: Path) -> None:
    """A bad one makes nobody anonymous, even where none is required."""
    stranger = Authority(tmp_path, "stranger").issue("mallory", x509.DNSName("ci.example.com"))
    with pytest.raises(TlsFailed, match=r"its certificate is refused: .*issuer"):
        shown(authority, certificate, stranger)
    with pytest.raises(TlsFailed, match="its certificate is refused: certificate has expired"):
        shown(authority, certificate, authority.issue("old", x509.DNSName("old"), lasts_s=-60))
    with pytest.raises(TlsFailed, match=r"its certificate is refused: .*purpose"):
        shown(authority, certificate, authority.issue("server-only", x509.DNSName("x"), usage=SERVERS))


def test_a_certificate_that_is_not_asked_for_is_not_looked_at(authority: Authority, certificate: Path) -> None:
    client = Client(
        TlsSession(server_context(certificate)),
        client_context(authority.path, authority.issue("unasked", x509.DNSName("x"))),
    )
    client.shake_hands()
    assert client.session.certificate is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_is_resumed_has_the_certificate_of_before(
    authority: Authority, certificate: Path, version: ssl.TLSVersion
) -> None:
    server = server_context(certificate, authority.path)
    context = client_context(authority.path, authority.issue("resuming", x509.DNSName("resuming")))
    context.minimum_version = context.maximum_version = version
    first = Client(TlsSession(server), context)
    first.shake_hands()
    first.hear()
    first.session.receive(first.close())
    second = Client(TlsSession(server), context, resumed=first.tls.session)
    second.shake_hands()
    assert second.tls.session_reused
    assert second.session.certificate == first.session.certificate is not None
