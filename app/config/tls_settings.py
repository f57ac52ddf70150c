"""The part of a configuration that says how the listener speaks TLS."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .value_types import about


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of the listener. SIGHUP reloads the files and keeps open connections."""

    certificate: Annotated[
        str,
        Meta(
            min_length=1,
            description="PEM file with the certificate, followed by intermediate certificates.",
        ),
    ]
    key: Annotated[str, Meta(min_length=1, description="PEM file with the private key. It may be the same file.")]
    key_password: Annotated[
        str | None, about("Password of the private key, if it is encrypted. Write it as ${NAME}.")
    ] = None

    def __repr__(self) -> str:
        password = None if self.key_password is None else "…"
        return f"Tls(certificate={self.certificate!r}, key={self.key!r}, key_password={password!r})"
