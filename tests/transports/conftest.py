"""A private certificate authority, for servers that speak TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority, and a server's certificate of it for the name localhost."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "config").write_text(
        "[req]\ndistinguished_name=name\n[name]\n"
        "[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n"
        "[leaf]\nsubjectAltName=DNS:localhost\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )

    def openssl(arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True, timeout=30)

    key = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config config"
    openssl(f"{key} -x509 -days 2 -subj /CN=Test -extensions ca -keyout ca.key -out ca.pem")
    openssl(f"{key} -subj /CN=localhost -keyout leaf.key -out leaf.csr")
    openssl("x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile config -extensions leaf"
            " -out leaf.pem")  # fmt: skip
    return folder


@pytest.fixture
def server_tls(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "leaf.pem", authority / "leaf.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
