"""A private certificate authority, for servers that speak TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_authority(folder: Path) -> None:
    """Makes a certificate authority, and a server's certificate of it for the name localhost: `ca.pem`, `leaf.pem`, and
    `leaf.key`."""
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
