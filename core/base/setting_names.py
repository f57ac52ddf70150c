"""The names of settings in error messages: keys of a configuration file, or options of a command without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec


class SettingNames(msgspec.Struct, frozen=True):
    """The names that error messages use for the settings which correct the error.

    Attributes:
        headers: the headers that a server gets.
        share: the process that all sessions of a server use.
        storage: the folder for files and records.
        ca_file: the file of the authorities whose certificates are trusted.
        unchecked: what has a server's certificate not checked; "": nothing does.
        proxy: the proxy that a server is reached through.
        hosts: further names of this listener.
        origins: the web pages that may call.
        trusted_proxies: the proxies in front that say which address a request came from.
        certificate: the file of the listener's certificate.
        certificate_key: the file of its private key.
        variable: a variable of the environment that a server's process gets, with `NAME` for its name.
        variable_list: what stands before several of them, between them, and after them.
    """

    headers: str = "upstream.headers or upstream.auth, or come from clients with upstream.pass_headers"
    share: str = "`share: concurrent` or `share: serial` for it"
    storage: str = "storage.root"
    ca_file: str = "upstream.ca_file"
    unchecked: str = "upstream.verify_tls: false"
    proxy: str = "upstream.proxy"
    hosts: str = "core.allowed_hosts"
    origins: str = "core.allowed_origins"
    trusted_proxies: str = "core.trusted_proxies"
    certificate: str = "core.tls.certificate"
    certificate_key: str = "core.tls.key"
    variable: str = 'NAME: "${NAME}"'
    variable_list: tuple[str, str, str] = ("write env: {", ", ", "}")

    def variables(self, names: Sequence[str]) -> str:
        """Returns what hands the variables of these names on to a server."""
        before, between, after = self.variable_list
        return before + between.join(self.variable.replace("NAME", name) for name in names) + after


KEYS: Final = SettingNames()
"""The names in a configuration file."""
OPTIONS: Final = SettingNames(
    headers="--header 'NAME: VALUE', or with `isthmus login URL` before, or come from clients with --pass-header",
    share="--share concurrent or --share serial",
    storage="--storage",
    ca_file="--ca-file",
    unchecked="--insecure",
    proxy="--proxy",
    hosts="--allow-host",
    origins="--allow-origin",
    trusted_proxies="core.trusted_proxies of a configuration file, for `isthmus serve`",
    certificate="--tls-certificate",
    certificate_key="--tls-key",
    variable="--env NAME",
    variable_list=("use ", " ", ""),
)
"""The names in the command line of `isthmus wrap`."""
OPTIONS_OF_SEVERAL: Final = msgspec.structs.replace(
    OPTIONS,
    variable=KEYS.variable,
    variable_list=("in a configuration file, for `isthmus serve --all`, write env: {", ", ", "}"),
)
"""The names there with several `--server`, for which there is no `--env`."""

MORE_TIME: Final = "start_timeout_seconds in the configuration gives it more"
"""The words for a start that takes too long."""
LARGER_FILES: Final = "uploads.max_file_bytes in the configuration allows larger ones"
"""The words for an upload that is too large."""
