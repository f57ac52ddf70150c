"""The files of the live page, and the headers that they are served with."""

from __future__ import annotations

from importlib import resources
from typing import Final

from ...core.wire.http.error_responses import page_error
from ...core.wire.http.routes import Refused

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "frame-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The Content-Security-Policy: nothing but these files runs, and no text becomes markup."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFiles:
    """The files, as read once."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str]] = {}
        root = resources.files(__package__).joinpath("static")
        folders = [("", root)]
        while folders:
            prefix, folder = folders.pop()
            for each in folder.iterdir():
                kind = _TYPES.get(each.name.rpartition(".")[2])
                if each.is_dir():
                    folders.append((f"{prefix}{each.name}/", each))
                elif kind is not None:
                    self._files[prefix + each.name] = each.read_bytes(), kind

    def answer(self, name: str) -> Refused:
        """Returns a file by its path below `/ui/`; "" is the page itself."""
        found = self._files.get(name or "index.html")
        if found is None:
            return page_error(404, f"got the file {name[:80]!r}, and the live page has none of that name", _GUARDS)
        body, kind = found
        described = ((b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)))
        return Refused(200, body, (*described, (b"cache-control", b"no-cache"), *_GUARDS))


_GUARDS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
