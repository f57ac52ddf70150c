"""Fixtures of servers that speak TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import make_authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority, and a server's certificate of it for the name localhost."""
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder)
    return folder


@pytest.fixture
def server_tls(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "leaf.pem", authority / "leaf.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
