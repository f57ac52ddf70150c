"""A certificate authority in the test's own process, for certificates of any kind."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR_S = 3600.0


class Authority:
    """Issues certificates below `folder`: `NAME.pem` and `NAME.key`. Its own certificate is `path`."""

    def __init__(self, folder: Path, name: str = "authority", lasts_s: float = HOUR_S) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        made = (
            _builder(self._name, self._name, self._key, lasts_s)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *others: x509.GeneralName,
        lasts_s: float = HOUR_S,
        password: bytes = b"",
        usage: x509.ObjectIdentifier | None = None,
    ) -> Path:
        """Issues a certificate with the common name `name` and `others` as its subject alternative names. Returns its
        path."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key, lasts_s)
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        path = self._folder / f"{name}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password)
        path.with_suffix(".key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        )
        path.with_suffix(".key").chmod(0o600)
        return path

    def server(self, name: str = "server", **options: float) -> Path:
        """Issues the certificate of a server that is called localhost and 127.0.0.1."""
        from ipaddress import ip_address

        return self.issue(name, x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")), **options)  # type: ignore[arg-type]


def client_context(authority: Path, certificate: Path | None = None) -> ssl.SSLContext:
    """The settings of a client that trusts the authority, and shows a certificate."""
    context = ssl.create_default_context(cafile=authority)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def server_context(certificate: Path, clients: Path | None = None, *, required: bool = False) -> ssl.SSLContext:
    """The settings of a server with a certificate, which accepts clients' certificates of the authority `clients`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


SERVERS, CLIENTS = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts_s: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=lasts_s))
    )
