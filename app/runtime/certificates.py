"""The certificate of the listener: read from its files, checked, and read again while connections go on."""

from __future__ import annotations

import logging
import os
import ssl
import time
from datetime import UTC, datetime
from typing import Final

from ...core.base.setting_names import KEYS, SettingNames
from ..base.errors import StartError
from ..config.access_settings import ClientCertificates
from ..config.settings import Settings
from ..config.tls_settings import Tls

_NO_CHECK_TIME: Final = 0x200000
"""Source: OpenSSL, include/openssl/x509_vfy.h: X509_V_FLAG_NO_CHECK_TIME. Python has no name for it."""
_OTHER_KEY: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""Reasons of `ssl.SSLError` for a key that is not the certificate's. The last one is that of a key of another kind."""
_READABLE_BY_ALL: Final = 0o004
_CLIENTS_FILE: Final = "auth.client_certificates.ca_file"

_log: Final = logging.getLogger("isthmus.tls")


class ListenerCertificate:
    """The certificate that new connections get.

    Args:
        clients: the authorities whose client certificates are accepted; None: clients show none.

    Raises:
        StartError: a file cannot be used.
    """

    def __init__(self, tls: Tls, clients: ClientCertificates | None, names: SettingNames = KEYS) -> None:
        self._tls = tls
        self._clients = clients
        self._names = names
        self._context, self._ends_at = self._load()
        self._note_mode()

    def current(self) -> ssl.SSLContext:
        """Returns the context of the next connection."""
        return self._context

    def reload(self) -> None:
        """Reads the files again, for the connections that come from now on. A file that cannot be used is logged, and
        everything stays as it was."""
        try:
            self._context, self._ends_at = self._load()
        except StartError as error:
            _log.error("the certificate stays as it was: %s", error)
        else:
            _log.info("the certificate was read again; it holds until %s", _day(self._ends_at))

    def _load(self) -> tuple[ssl.SSLContext, float]:
        tls, names = self._tls, self._names
        if b"-----BEGIN CERTIFICATE-----" not in (content := _read(names.certificate, tls.certificate)):
            raise StartError(f"{names.certificate} {tls.certificate} holds no certificate, expected one as PEM")
        if b"PRIVATE KEY-----" not in _read(names.certificate_key, tls.key):
            raise StartError(f"{names.certificate_key} {tls.key} holds no private key, expected one as PEM")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        self._load_key(context)
        ends_at = self._end_of(context, content.decode("latin-1"))
        if ends_at <= time.time():
            raise StartError(f"{names.certificate} {tls.certificate} has expired on {_day(ends_at)}: renew it")
        if self._clients is not None:
            _trust(context, self._clients)
        return context, ends_at

    def _load_key(self, context: ssl.SSLContext) -> None:
        tls, names = self._tls, self._names
        is_encrypted = False

        def password() -> str:  # without this, OpenSSL would ask on the terminal
            nonlocal is_encrypted
            is_encrypted = True
            return tls.key_password or ""

        try:
            context.load_cert_chain(tls.certificate, tls.key, password)
        except OSError as error:
            reason = getattr(error, "reason", None) or str(error)
            if is_encrypted:
                seen = "cannot be opened without core.tls.key_password: set it to the right one"
                raise StartError(f"{names.certificate_key} {tls.key} is encrypted, and {seen}") from error
            if reason in _OTHER_KEY:
                raise StartError(
                    f"{names.certificate_key} {tls.key} is not the key of {names.certificate} {tls.certificate}: "
                    "name the two files that belong together"
                ) from error
            raise StartError(
                f"{names.certificate} {tls.certificate} and {names.certificate_key} {tls.key} cannot be used: "
                f"{reason.replace('_', ' ').lower()}"
            ) from error

    def _end_of(self, context: ssl.SSLContext, pem: str) -> float:
        """Returns until when the certificate holds, in Unix seconds. Python shows that of a peer's certificate only, so
        a client of our own looks at it."""
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(cadata=pem)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = context.wrap_bio(there, back, server_side=True)
        theirs = client.wrap_bio(back, there)
        for side in (theirs, ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                names, path = self._names, self._tls.certificate
                seen = getattr(error, "verify_message", None) or error.reason or error
                raise StartError(f"{names.certificate} {path} is refused by clients: {seen}") from error
        shown = theirs.getpeercert()
        assert shown, "the handshake is complete after the client's second step"
        ends = shown["notAfter"]
        assert isinstance(ends, str)
        return float(ssl.cert_time_to_seconds(ends))

    def _note_mode(self) -> None:
        if os.stat(self._tls.key).st_mode & _READABLE_BY_ALL:
            _log.warning(
                "%s %s can be read by every user of this machine: chmod o-r",
                self._names.certificate_key,
                self._tls.key,
            )


def listener_certificate(settings: Settings, names: SettingNames = KEYS) -> ListenerCertificate | None:
    """Returns the certificate of the listener; None if it speaks plain HTTP.

    Raises:
        StartError: a file cannot be used.
    """
    tls = settings.core.tls
    return None if tls is None else ListenerCertificate(tls, settings.auth.client_certificates, names)


def unusable_certificate(settings: Settings) -> str:
    """Returns why the listener's certificate cannot be used; "" if it can, or there is none."""
    try:
        listener_certificate(settings)
    except StartError as error:
        return str(error)
    return ""


def _trust(context: ssl.SSLContext, clients: ClientCertificates) -> None:
    """Has clients show a certificate of the authorities in a file."""
    content = _read(_CLIENTS_FILE, clients.ca_file)
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise StartError(f"{_CLIENTS_FILE} {clients.ca_file} holds no certificates, expected some as PEM") from error
    authorities = context.get_ca_certs()
    if not authorities:
        raise StartError(f"{_CLIENTS_FILE} {clients.ca_file} holds no certificate of an authority, expected one")
    if max(ssl.cert_time_to_seconds(str(each["notAfter"])) for each in authorities) <= time.time():
        raise StartError(f"{_CLIENTS_FILE} {clients.ca_file} has expired: renew it")
    context.verify_mode = ssl.CERT_REQUIRED if clients.required else ssl.CERT_OPTIONAL


def _read(key: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise StartError(f"{key} {path} is missing: name a file that is there") from None
    except PermissionError:
        raise StartError(f"{key} {path} may not be read by user {os.geteuid()}: let that user read it") from None
    except OSError as error:
        raise StartError(f"{key} {path} cannot be read: {error.strerror or error}") from None


def _day(at_unix: float) -> str:
    return datetime.fromtimestamp(at_unix, UTC).date().isoformat()
