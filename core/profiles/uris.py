"""URIs of resources as clients of a profile see them: `alias+uri`, which is a URI again, of a scheme of its own.

The URI of a user interface stays one: `ui://alias+rest`. A text without a scheme becomes `alias+rel:` and its percent
form; slashes stay, so that what lies below a URI lies below it for clients, too. A server without an alias keeps its
URIs. Where a URI would be read as another one in this form, it takes the percent form, too.

Schemes of the profile's own files pass as they are: they are not of one server.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote, unquote

from ..base.plan import UPLOAD_SCHEME
from .aliases import ALIAS, Aliases
from .names import Route

OWN_SCHEMES: Final = ("artifact://", UPLOAD_SCHEME)
UI: Final = "ui://"
RELATIVE: Final = "rel:"
"""The mark before a percent form, where a scheme would be."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ALIASED: Final = re.compile(rf"({ALIAS})\+")


class Uris:
    """The URIs of one profile, in both directions.

    Args:
        own: the schemes of the profile's own files, with `://`.
    """

    def __init__(self, aliases: Aliases, *, own: Collection[str] = OWN_SCHEMES) -> None:
        self._aliases = aliases
        self._own = tuple(own)

    def is_own(self, uri: str) -> bool:
        """True if a URI is of the profile's own files."""
        return uri.startswith(self._own)

    def expose(self, server: str, uri: str) -> str:
        """Returns the URI that clients have for the URI of a resource."""
        alias = self._aliases.of(server)
        return self._exposed(server, uri, is_plain=not alias or _SCHEME.match(uri) is not None)

    def expose_template(self, server: str, template: str) -> str:
        """Returns the template that clients have for a URI template.

        A template keeps its text even if it has no scheme. What clients put into it is percent-encoded, and a server
        would get it decoded if the whole were a percent form. A scheme may come out of an expression (`{+url}`).
        """
        return self._exposed(server, template, is_plain=True)

    def route(self, uri: str) -> Route | None:
        """Returns what a URI or a template that a client sent stands for; the inverse of both. None if it has no alias
        of the profile."""
        if self.is_own(uri):
            return None
        start = len(UI) if uri.startswith(UI) else 0
        match = _ALIASED.match(uri, start)
        server = None if match is None else self._aliases.server_of(match[1])
        if match is not None and server is not None:
            uri = uri[:start] + uri[match.end() :]
        else:
            server = self._aliases.bare
        if server is None:
            return None
        return Route(server, unquote(uri.removeprefix(RELATIVE)) if uri.startswith(RELATIVE) else uri)

    def _exposed(self, server: str, raw: str, *, is_plain: bool) -> str:
        if self.is_own(raw):
            return raw
        alias = self._aliases.of(server)
        prefix = f"{alias}+" if alias else ""
        plain = UI + prefix + raw.removeprefix(UI) if raw.startswith(UI) else prefix + raw
        if is_plain and self.route(plain) == Route(server, raw):
            return plain
        form = quote(raw)
        if form.startswith("/"):  # else clients would take steps out of what they see as a path
            form = f"%2F{form[1:]}"
        return f"{prefix}{RELATIVE}{form}"
