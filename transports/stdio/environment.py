"""The variables of our environment that a child process inherits.

A server is often started by a runner that fetches it first, such as npx or uvx, and calls other hosts itself. Behind
the proxy of a company, or with its own authority or package registry, neither works without the variables that say so.
Everything else stays here, since it may hold secrets that do not concern the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OWN: Final = frozenset({"PATH", "HOME", "LANG", "LOGNAME", "SHELL", "TERM", "USER", "TMPDIR", "TZ"})
"""Variables that programs expect, besides `LC_*`."""
PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
"""Proxies, in upper or lower case. A password in one is handed on: without it, nothing is reached."""
CERTIFICATES: Final = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)
NPM: Final = frozenset(
    {"proxy", "http_proxy", "https_proxy", "noproxy", "ca", "cafile", "strict_ssl", "registry", "userconfig", "cache"}
)
"""Settings of npm that a variable `npm_config_…` may set, in upper or lower case. Others are tokens, or of no use."""
RUNNERS: Final = frozenset(
    {
        *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY", "UV_FIND_LINKS"),
        *("UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST", "UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON"),
        *("UV_CONFIG_FILE", "UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_OFFLINE"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_PROXY", "PIP_CERT", "PIP_TRUSTED_HOST"),
        *("PIP_CONFIG_FILE", "PIP_CACHE_DIR"),
    }
)
"""Variables of uv, uvx, pip and pipx."""

_NPM: Final = "npm_config_"
_CREDENTIALS: Final = re.compile(r"://[^/\s]*@")


def inherited(ours: Mapping[str, str]) -> dict[str, str]:
    """Returns those variables of `ours` that a child inherits."""
    return {name: value for name, value in ours.items() if _is_inherited(name, value)}


def _is_inherited(name: str, value: str) -> bool:
    """The URL of a registry with credentials is not inherited: they open more than the server needs."""
    is_proxy = name.upper() in PROXIES and (name.isupper() or name.islower())
    if is_proxy or name in OWN or name in CERTIFICATES or name.startswith("LC_"):
        return True
    setting = name.lower().removeprefix(_NPM).replace("-", "_") if name.lower().startswith(_NPM) else ""
    if name not in RUNNERS and setting not in NPM:
        return False
    names_proxy = name == "PIP_PROXY" or setting.endswith("proxy")
    return names_proxy or _CREDENTIALS.search(value) is None
