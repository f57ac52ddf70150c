"""The caller that a client's certificate names.

The name is the first URI of the certificate's subject alternative names, else the first DNS name, else the first e-mail
address. The common name of the subject is never used: it has no type, so it may be anything. The three kinds have forms
that exclude each other, so no name of one kind can be taken for one of another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .identity import NOTHING, ClientCertificate, Identity

NAME_MAX_CHARS: Final = 512
"""The longest name in a certificate that names a caller. At it: 401."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_DNS_NAME: Final = re.compile(r"[a-z0-9_.-]+")
_EMAIL: Final = re.compile(r"[!-9;-?A-~]+@[A-Za-z0-9_.-]+")


def from_certificate(
    certificate: ClientCertificate, groups: Mapping[str, frozenset[str]], now: float
) -> Identity | str:
    """Returns the identity of the caller, or why there is none.

    Args:
        groups: the groups of callers, by their names.
        now: in Unix seconds.
    """
    if now >= certificate.expires_at:
        return "the client certificate has expired"
    name = name_of(certificate)
    if name is None:
        return "the client certificate has no usable URI, DNS name or e-mail address as subject alternative name"
    return Identity(
        f"cert:{name}",
        groups=groups.get(name, NOTHING),
        expires_at=certificate.expires_at,
        via="certificate",
    )


def name_of(certificate: ClientCertificate) -> str | None:
    """Returns the name of the caller; None if the certificate has none, or one of another form than its kind has."""
    if certificate.uris:
        return _checked(certificate.uris[0], _URI)
    if certificate.dns_names:
        return _checked(certificate.dns_names[0].lower(), _DNS_NAME)
    return _checked(certificate.emails[0], _EMAIL) if certificate.emails else None


def is_name(text: str) -> bool:
    """True if a certificate can name a caller so."""
    return any(_checked(text, form) is not None for form in (_URI, _DNS_NAME, _EMAIL))


def _checked(name: str, form: re.Pattern[str]) -> str | None:
    return name if len(name) <= NAME_MAX_CHARS and form.fullmatch(name) else None
