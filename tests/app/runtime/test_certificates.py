"""Tests of the listener's certificate: its files, what is wrong with them, and reading them again."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from issuing import CLIENTS, Authority, client_context
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Auth, ClientCertificates
from isthmus.app.config.settings import Core, Settings
from isthmus.app.config.tls_settings import Tls
from isthmus.app.runtime.certificates import ListenerCertificate, listener_certificate, unusable_certificate
from isthmus.core.base.setting_names import OPTIONS


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(path: Path, **rest: str) -> Tls:
    return Tls(certificate=str(path), key=str(path.with_suffix(".key")), **rest)


def served(context: ssl.SSLContext, authority: Authority) -> dict[str, object]:
    """The certificate that a client gets which trusts the authority."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(there, back, server_side=True)
    theirs = client_context(authority.path).wrap_bio(back, there, server_hostname="localhost")
    for side in (theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    found = theirs.getpeercert()
    assert found
    return found


def test_a_certificate_is_served_with_tls_1_2_or_later(authority: Authority) -> None:
    made = ListenerCertificate(tls(authority.server()), None)
    context = made.current()
    assert served(context, authority)["subjectAltName"] == (("DNS", "localhost"), ("IP Address", "127.0.0.1"))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_NONE


def test_a_file_may_hold_both_and_the_chain(authority: Authority, tmp_path: Path) -> None:
    path = authority.server()
    both = tmp_path / "both.pem"
    parts = (path.with_suffix(".key"), path, authority.path)
    both.write_bytes(b"".join(part.read_bytes() for part in parts))
    made = ListenerCertificate(Tls(certificate=str(both), key=str(both)), None)
    assert served(made.current(), authority)


def test_an_encrypted_key_is_opened_with_its_password(authority: Authority) -> None:
    path = authority.issue("server", x509.DNSName("localhost"), password=b"open sesame")
    assert served(ListenerCertificate(tls(path, key_password="open sesame"), None).current(), authority)
    for given in ({}, {"key_password": "wrong"}):
        with pytest.raises(StartError, match=r"core.tls.key \S+ is encrypted, .* core.tls.key_password"):
            ListenerCertificate(tls(path, **given), None)
    assert "sesame" not in repr(tls(path, key_password="open sesame"))


def _missing(path: Path, authority: Authority) -> None:
    path.unlink()


def _missing_key(path: Path, authority: Authority) -> None:
    path.with_suffix(".key").unlink()


def _folder(path: Path, authority: Authority) -> None:
    path.unlink()
    path.mkdir()


def _no_certificate(path: Path, authority: Authority) -> None:
    path.write_text("not PEM")


def _no_key(path: Path, authority: Authority) -> None:
    path.with_suffix(".key").write_bytes(path.read_bytes())


def _other_key(path: Path, authority: Authority) -> None:
    authority.server("other").with_suffix(".key").rename(path.with_suffix(".key"))


def _key_of_another_kind(path: Path, authority: Authority) -> None:
    key = rsa.generate_private_key(65537, 2048)
    path.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _expired(path: Path, authority: Authority) -> None:
    authority.server(path.stem, lasts_s=-60)


def _for_clients(path: Path, authority: Authority) -> None:
    authority.issue(path.stem, x509.DNSName("localhost"), usage=CLIENTS)


def _broken(path: Path, authority: Authority) -> None:
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


FAULTS: dict[Callable[[Path, Authority], None], str] = {
    _missing: r"^core.tls.certificate \S+ is missing: name a file that is there$",
    _missing_key: r"^core.tls.key \S+ is missing: name a file that is there$",
    _folder: r"^core.tls.certificate \S+ cannot be read: Is a directory$",
    _no_certificate: r"^core.tls.certificate \S+ holds no certificate, expected one as PEM$",
    _no_key: r"^core.tls.key \S+ holds no private key, expected one as PEM$",
    _other_key: r"^core.tls.key \S+ is not the key of core.tls.certificate \S+: name the two files that belong",
    _key_of_another_kind: r"^core.tls.key \S+ is not the key of core.tls.certificate \S+: name the two files",
    _expired: r"^core.tls.certificate \S+ has expired on \d{4}-\d\d-\d\d: renew it$",
    _for_clients: r"^core.tls.certificate \S+ is refused by clients: unsuitable certificate purpose$",
    _broken: r"^core.tls.certificate \S+ and core.tls.key \S+ cannot be used: ",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_wrong_is_named(authority: Authority, fault: Callable[[Path, Authority], None]) -> None:
    path = authority.server()
    fault(path, authority)
    settings = Settings(core=Core(tls=tls(path)))
    with pytest.raises(StartError, match=FAULTS[fault]) as caught:
        listener_certificate(settings)
    assert unusable_certificate(settings) == str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(authority: Authority) -> None:
    path = authority.server()
    path.with_suffix(".key").chmod(0)
    with pytest.raises(StartError, match=rf"^core.tls.key \S+ may not be read by user {os.geteuid()}: let that user"):
        ListenerCertificate(tls(path), None)


def test_a_refusal_to_read_is_explained(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the system stands for a file that root could read."""
    path = authority.server()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(StartError, match=rf"^--tls-certificate \S+ may not be read by user {os.geteuid()}"):
        ListenerCertificate(tls(path), None, OPTIONS)


def test_no_certificate_is_fine() -> None:
    assert listener_certificate(Settings()) is None
    assert unusable_certificate(Settings()) == ""


def test_a_key_that_everybody_can_read_is_warned_of(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    path = authority.server()
    ListenerCertificate(tls(path), None)
    assert not caplog.messages
    path.with_suffix(".key").chmod(0o644)
    ListenerCertificate(tls(path), None)
    (line,) = caplog.messages
    assert line == f"core.tls.key {path.with_suffix('.key')} can be read by every user of this machine: chmod o-r"


# --- Reading again --------------------------------------------------------------------------------------------------


def test_a_renewed_certificate_is_for_new_connections(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    path = authority.server()
    made = ListenerCertificate(tls(path), None)
    before = made.current()
    first = served(before, authority)["serialNumber"]
    authority.server()
    assert served(made.current(), authority)["serialNumber"] == first
    with caplog.at_level(logging.INFO, "isthmus.tls"):
        made.reload()
    second = served(made.current(), authority)["serialNumber"]
    assert second != first
    assert served(before, authority)["serialNumber"] == first, "of a connection that is being made"
    assert "the certificate was read again; it holds until 20" in caplog.text


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_files_that_cannot_be_used_change_nothing(
    authority: Authority, fault: Callable[[Path, Authority], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = authority.server()
    made = ListenerCertificate(tls(path), None)
    before = made.current()
    fault(path, authority)
    made.reload()
    assert made.current() is before
    assert "the certificate stays as it was: core.tls." in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR


# --- Certificates of clients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("required", "mode"), [(False, ssl.CERT_OPTIONAL), (True, ssl.CERT_REQUIRED)])
def test_certificates_of_clients_are_asked_for(authority: Authority, required: bool, mode: ssl.VerifyMode) -> None:
    clients = ClientCertificates(ca_file=str(authority.path), required=required)
    made = listener_certificate(
        Settings(core=Core(tls=tls(authority.server())), auth=Auth(client_certificates=clients))
    )
    assert made is not None
    assert made.current().verify_mode is mode


def test_what_is_wrong_with_the_authorities_is_named(authority: Authority, tmp_path: Path) -> None:
    key = "auth.client_certificates.ca_file"
    path = authority.server()
    old = Authority(tmp_path, "old", lasts_s=-60).path
    texts = tmp_path / "texts.pem"
    texts.write_text("none here")
    for file, problem in (
        (tmp_path / "nothing.pem", rf"^{key} \S+ is missing"),
        (texts, rf"^{key} \S+ holds no certificates, expected some as PEM$"),
        (path, rf"^{key} \S+ holds no certificate of an authority, expected one$"),
        (old, rf"^{key} \S+ has expired: renew it$"),
    ):
        with pytest.raises(StartError, match=problem):
            ListenerCertificate(tls(path), ClientCertificates(ca_file=str(file)))


def test_renewed_authorities_are_read_again(authority: Authority, tmp_path: Path) -> None:
    clients = ClientCertificates(ca_file=str(tmp_path / "clients.pem"))
    (tmp_path / "clients.pem").write_bytes(authority.path.read_bytes())
    made = ListenerCertificate(tls(authority.server()), clients)
    assert len(made.current().get_ca_certs()) == 1
    other = Authority(tmp_path, "other")
    (tmp_path / "clients.pem").write_bytes(authority.path.read_bytes() + other.path.read_bytes())
    made.reload()
    assert len(made.current().get_ca_certs()) == 2
