"""Checks of single values, in a configuration or on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ...core.base.name_filter import NameFilter
from ...core.base.regex import RegexError, compile_regex
from ...core.bridge.request_state import KEY_MIN_BYTES
from ..base.problem import Problem

UNIX_PATH_MAX_BYTES: Final = 103
"""Longest path of a Unix socket on every system: the smallest limit is 104 bytes, with a NUL at the end."""
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DOTTED: Final = re.compile(r"[^.\s\[\]]+(\.[^.\s\[\]]+)*")
_DOTTED_ITEMS: Final = re.compile(r"[^.\s\[\]]+(\[\*\])*(\.[^.\s\[\]]+(\[\*\])*)*")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^/?#@:*\s\[\]]+)(:[0-9]{1,5})?")
_HOST: Final = re.compile(r"\[[0-9a-f:.]+\](:[0-9]*)?|[0-9a-f:.]+|[^/?#@:*\s\[\]]+(:[0-9]*)?")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+")
_TOKEN: Final = re.compile(r"[!-~]+")


def check_token(key: str, token: str | None) -> Iterator[Problem]:
    """Checks a token, which is sent in a header. Problems never repeat it: a wrong one is a secret too."""
    if token is not None and _TOKEN.fullmatch(token) is None:
        yield Problem(key, "a secret of visible ASCII characters, and no spaces", "got another text")


def check_secret(key: str, secret: str) -> Iterator[Problem]:
    """Checks the length of a signing secret. Problems never repeat it: a wrong one is a secret too."""
    size = len(secret.encode())
    if size < KEY_MIN_BYTES:
        right = f"a secret of {KEY_MIN_BYTES} bytes or more, such as one of `openssl rand -hex 32`"
        yield Problem(key, right, f"got {size} bytes")


def check_origin(key: str, origin: str) -> Iterator[Problem]:
    """Checks an origin, which is compared with the whole Origin header."""
    if _ORIGIN.fullmatch(origin.lower()) is None:
        yield Problem(key, "the origin of web pages, such as https://example.com or http://localhost:8080, and no more")


def check_host(key: str, host: str) -> Iterator[Problem]:
    """Checks a host, which is compared with the Host header, both without their ports."""
    if _HOST.fullmatch(host.lower()) is None:
        yield Problem(key, "a name or an address, without scheme and path")


def check_selection(key: str, selection: NameFilter) -> Iterator[Problem]:
    for name, entries in (("include", selection.include), ("exclude", selection.exclude)):
        for i, entry in enumerate(entries):
            if not entry.strip():
                yield Problem(f"{key}.{name}[{i}]", "a name, or a pattern such as get_*")
    for i, entry in enumerate(selection.exclude_regexes):
        yield from check_regex(f"{key}.exclude_regexes[{i}]", entry)


def check_regex(key: str, regex: str) -> Iterator[Problem]:
    try:
        compile_regex(regex)
    except RegexError as error:
        yield Problem(key, error.expected, error.seen)


def usable_part(selection: NameFilter) -> NameFilter:
    """Returns the filter without the regular expressions that `check_regex` reports."""
    sound = tuple(one for one in selection.exclude_regexes if not any(check_regex("", one)))
    return msgspec.structs.replace(selection, exclude_regexes=sound)


def check_further_path(key: str, path: str) -> Iterator[Problem]:
    """Checks a path, which is compared with the path of a request as it is written there."""
    if _PATH.fullmatch(path) is None:
        yield Problem(key, "an absolute path such as /mcp/files, without a slash at the end")


def check_url(
    key: str, url: str, *, may_query: bool = True, schemes: Sequence[str] = ("http", "https")
) -> Iterator[Problem]:
    *others, last = (f"{scheme}://" for scheme in schemes)
    right = f"an {', '.join(others)} or {last} URL with a host"
    # urlsplit drops tabs and line ends silently: the URL that is checked would not be the one that is used.
    if any(character <= " " or character == "\x7f" for character in url):
        yield Problem(key, f"{right}, without spaces and control characters")
        return
    try:
        parts = urlsplit(url)
        assert parts.port is None or parts.port >= 0
    except ValueError:
        yield Problem(key, right)
        return
    if parts.scheme == "sse":
        yield Problem(key, "an sse+http:// or sse+https:// URL with a host")
    elif parts.scheme not in schemes or not parts.hostname:
        yield Problem(key, right)
    elif parts.username is not None:
        yield Problem(key, "a URL without credentials; they belong into headers", "got a URL with credentials")
    elif not may_query and (parts.query or parts.fragment):
        yield Problem(key, f"{right} and no query")


def check_headers(key: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in headers.items():
        yield from check_header_name(f"{key}.{shown_header_name(name)}", name)
        if any((character < " " and character != "\t") or character == "\x7f" for character in value):
            yield Problem(f"{key}.{shown_header_name(name)}", "a header value without control characters")


def check_header_name(key: str, name: str) -> Iterator[Problem]:
    if HEADER_NAME.fullmatch(name) is None:
        yield Problem(key, "a header name: letters, digits and dashes", f"got the name {shown_header_name(name)!r}")


def shown_header_name(name: str) -> str:
    """Returns the name of a header for people. What stands behind a colon is a misplaced value, and not shown."""
    shown, colon, _ = name.partition(":")
    return f"{shown}:…" if colon else name


def check_path(key: str, path: str) -> Iterator[Problem]:
    if not path.strip() or "\0" in path:
        yield Problem(key, "the path of a file or folder")
    elif path.startswith("~"):
        yield Problem(key, "an absolute path, or one from the configuration's folder: write ${HOME} for ~")


def check_socket_path(key: str, path: str) -> Iterator[Problem]:
    yield from check_path(key, path)
    if len(path.encode()) > UNIX_PATH_MAX_BYTES:
        yield Problem(key, f"a path of at most {UNIX_PATH_MAX_BYTES} bytes")


def check_dotted(key: str, path: str) -> Iterator[Problem]:
    if _DOTTED.fullmatch(path) is None:
        yield Problem(key, "property names joined by dots, such as path or options.file, and no brackets")


def check_dotted_items(key: str, path: str) -> Iterator[Problem]:
    if _DOTTED_ITEMS.fullmatch(path) is None:
        yield Problem(key, "property names joined by dots, with [*] for the items of a list, such as files[*].path")
