"""The part of a configuration that says how the listener speaks TLS."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .value_types import about


class Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of the listener. SIGHUP reads the files again; connections stay."""

    certificate: Annotated[
        str,
        Meta(
            min_length=1,
            description="File with the listener's certificate, followed by those of intermediate authorities, as PEM.",
        ),
    ]
    key: Annotated[
        str, Meta(min_length=1, description="File with the certificate's private key, as PEM. It may be the same.")
    ]
    key_password: Annotated[str | None, about("What opens the key, if it is encrypted, better as ${NAME}.")] = None

    def __repr__(self) -> str:
        password = None if self.key_password is None else "…"
        return f"Tls(certificate={self.certificate!r}, key={self.key!r}, key_password={password!r})"
