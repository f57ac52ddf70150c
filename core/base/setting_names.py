"""The names of settings in error messages: keys of a configuration file, or options of a command without one."""

from __future__ import annotations

from typing import Final

import msgspec


class SettingNames(msgspec.Struct, frozen=True):
    """The names that error messages use for the settings which correct the error.

    Attributes:
        headers: the headers that a server gets.
        share: the process that all sessions of a server use.
        storage: the folder for files and records.
        ca_file: the file of the authorities whose certificates are trusted.
        proxy: the proxy that a server is reached through.
        certificate: the file of the listener's certificate.
        certificate_key: the file of its private key.
    """

    headers: str = "upstream.headers or upstream.auth, or come from clients with upstream.pass_headers"
    share: str = "`share: concurrent` or `share: serial` for it"
    storage: str = "storage.root"
    ca_file: str = "upstream.ca_file"
    proxy: str = "upstream.proxy"
    certificate: str = "core.tls.certificate"
    certificate_key: str = "core.tls.key"


KEYS: Final = SettingNames()
"""The names in a configuration file."""
OPTIONS: Final = SettingNames(
    headers="--header 'NAME: VALUE', or with `isthmus login URL` before, or come from clients with --pass-header",
    share="--share concurrent or --share serial",
    storage="--storage",
    ca_file="--ca-file",
    proxy="--proxy",
    certificate="--tls-certificate",
    certificate_key="--tls-key",
)
"""The names in the command line of `isthmus wrap`."""

MORE_TIME: Final = "start_timeout_seconds in the configuration gives it more"
"""The words for a start that takes too long."""
LARGER_FILES: Final = "uploads.max_file_bytes in the configuration allows larger ones"
"""The words for an upload that is too large."""
