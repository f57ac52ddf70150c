"""Parses `WWW-Authenticate`: several challenges in one value, quoted parameters, token68.

Source: RFC 9110, 11.2, 11.3 and 11.6.1; RFC 6750, 3; RFC 9728, 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

VALUE_MAX_CHARS: Final = 16 * 1024
"""The longest value that is read. Heads of responses are shorter. At it: the value gives no challenge."""
PARAMETERS_MAX: Final = 64
"""The most parameters of a challenge; RFCs define about ten. At it: the value gives no challenge."""

_BEARER: Final = "bearer"

_TOKEN: Final = r"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_SEPARATOR: Final = re.compile(r"[ \t]*(?:,[ \t]*)*")
_SCHEME: Final = re.compile(_TOKEN)
_TOKEN68: Final = re.compile(r"[ \t]+([-._~+/0-9A-Za-z]+=*)(?=[ \t]*(?:,|\Z))")
_QUOTED: Final = r'"((?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*)"'
# Servers write URLs without quotation marks, though ":" and "/" are in no token. It can be read in one way only.
_PARAMETER: Final = re.compile(
    rf"({_TOKEN})[ \t]*=[ \t]*(?:{_QUOTED}|([\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]+))(?=[ \t]*(?:,|\Z))"
)
_ESCAPED: Final = re.compile(r"\\(.)")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge: its scheme and the names of its parameters in lower case, and either a token68 or parameters."""

    scheme: str
    parameters: Mapping[str, str] = {}
    token68: str = ""


class BearerChallenge(msgspec.Struct, frozen=True):
    """The parameters of a challenge for a bearer token.

    Attributes:
        resource_metadata: the URL of the protected-resource metadata; "" if it is not named.
        scope: the scopes that the request needs; None if they are not named.
        error: the code of RFC 6750, 3.1; "" if there was no token.
    """

    resource_metadata: str = ""
    scope: tuple[str, ...] | None = None
    error: str = ""


def parse_challenges(value: str) -> list[Challenge]:
    """Returns the challenges of one `WWW-Authenticate`, in their order.

    A value that is not written as the grammar says gives none, because it is not known where in it a challenge ends.
    The same holds for a challenge with a parameter twice, "which must only occur once" (RFC 9110, 11.2).
    """
    if len(value) > VALUE_MAX_CHARS:
        return []
    found: list[Challenge] = []
    at = _skip(value, 0)
    while at < len(value):
        scheme = _SCHEME.match(value, at)
        if scheme is None:
            return []
        at = scheme.end()
        token68 = _TOKEN68.match(value, at)
        if token68 is not None:
            found.append(Challenge(scheme[0].lower(), token68=token68[1]))
            at = _skip(value, token68.end())
            continue
        parameters: dict[str, str] = {}
        after = _skip(value, at)
        if after < len(value) and _PARAMETER.match(value, after) is None and "," not in value[at:after]:
            return []
        at = after
        while (pair := _PARAMETER.match(value, at)) is not None:
            name = pair[1].lower()
            if name in parameters or len(parameters) >= PARAMETERS_MAX:
                return []
            parameters[name] = pair[3] if pair[2] is None else _ESCAPED.sub(r"\1", pair[2])
            at = _skip(value, pair.end())
        found.append(Challenge(scheme[0].lower(), parameters))
    return found


def format_challenge(challenge: Challenge) -> str:
    """Returns the challenge as it is written in a header; `parse_challenges` gives it back."""
    if challenge.token68:
        return f"{challenge.scheme} {challenge.token68}"
    pairs = ", ".join(f'{name}="{_escape(value)}"' for name, value in challenge.parameters.items())
    return f"{challenge.scheme} {pairs}".rstrip(" ")


def find_bearer(values: Iterable[str]) -> BearerChallenge | None:
    """Returns the first challenge for a bearer token in the `WWW-Authenticate` headers of a response; None if there is
    none."""
    for value in values:
        for challenge in parse_challenges(value):
            if challenge.scheme == _BEARER:
                scope = challenge.parameters.get("scope")
                return BearerChallenge(
                    challenge.parameters.get("resource_metadata", ""),
                    None if scope is None else split_scope(scope),
                    challenge.parameters.get("error", ""),
                )
    return None


def split_scope(text: str) -> tuple[str, ...]:
    """Returns the scopes of a text, each once. Source: RFC 6749, 3.3. What is no scope is left out."""
    return tuple(dict.fromkeys(each for each in text.split(" ") if re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", each)))


def _skip(value: str, at: int) -> int:
    """Returns the place behind blanks and commas: empty elements of a list are ignored (RFC 9110, 5.6.1.2)."""
    found = _SEPARATOR.match(value, at)
    assert found is not None
    return found.end()


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
