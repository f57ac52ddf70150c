"""Regular expressions of configurations, over text that peers choose.

They are read by RE2 (the package google-re2), whose searches never go back in the text, so no text makes one slow. Its
dialect has no look-around, no back-references, no possessive and no atomic groups. `\\w`, `\\d`, `\\s` and `\\b` are
ASCII only. RE2 is imported when the first expression is compiled: a configuration without any does not need it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Final

PATTERN_MAX_CHARS: Final = 4096
"""The longest expression. A list of a hundred tools' names has some 3,000 characters."""

MEMORY_MAX_BYTES: Final = 1024 * 1024
"""Memory of one compiled expression: its program, and the states that RE2 keeps of it. A state is made of what the
program can be doing; with room for some hundreds of them a search takes one step a byte."""

PROGRAM_MAX: Final = 4096
"""Instructions of one compiled expression. Usual ones have under a hundred, and `\\pL` has 1,200. When its states do
not fit the memory, a search takes up to so many steps for each byte."""

STEPS_MAX: Final = 1 << 29
"""Bytes searched in one text, times the instructions of the expression: 75 searches of 128 KiB for one of 54
instructions. Each match begins a search that may look at all of the text behind it, so many matches multiply the work.
A step takes some 7 ns at worst."""

INSTALL: Final = "pip install 'isthmus[regex]'"

_OPTIONS: Final = {"max_mem": MEMORY_MAX_BYTES, "log_errors": False}

# What RE2 says of something that Python's `re` has, and what to write instead.
_INSTEAD: Final = (
    (
        r"invalid perl operator: \(\?<?[=!]",
        "there is no look-around: match the text beside it as well, and put what counts into a group",
    ),
    (r"invalid perl operator: \(\?>|bad repetition operator: .\+", "write it without: a search never goes back here"),
    (r"invalid perl operator: \(\?[#x]", "there are no comments and no x flag: leave them out"),
    (
        r"invalid perl operator: \(\?[(P]|invalid escape sequence: \\[1-9]",
        "there are no back-references: write the alternatives out",
    ),
    (r"invalid escape sequence: \\Z", r"write \z"),
    (r"invalid escape sequence: \\[uU]", r"write \x{…}, with the hexadecimal digits in the braces"),
    (r"invalid repetition size", "a count goes up to 1000, and counts within each other up to 1000 together"),
    (r"pattern too large", "write smaller counts, or fewer classes of Unicode"),
)


class RegexError(ValueError):
    """An expression cannot be used.

    Attributes:
        expected: what would be right, and what mends it.
        seen: what is wrong; "" if that is the expression.
    """

    def __init__(self, expected: str, seen: str = "") -> None:
        super().__init__(f"{seen}, expected {expected}" if seen else f"expected {expected}")
        self.expected = expected
        self.seen = seen


class Regex:
    """A compiled expression. `compile_regex` makes it."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._group = compiled.groupindex.get("path", min(compiled.groups, 1))

    def matches(self, text: str) -> bool:
        """True if the whole of `text` matches."""
        return self._compiled.fullmatch(_encoded(text)) is not None

    def paths(self, text: str) -> Iterator[str]:
        """Yields of each match the group `path`, else group 1, else the whole of it, in order, until the search has
        taken `STEPS_MAX`."""
        data = _encoded(text)
        at, steps = 0, 0
        while at <= len(data) and steps < STEPS_MAX:
            steps += self._compiled.programsize * (len(data) - at)
            match = self._compiled.search(data, at)
            if match is None:
                return
            found = match[self._group]
            yield (match[0] if found is None else found).decode()
            at = match.end()
            if match.start() == at:  # an empty match: go on behind the next character
                at += 1
                while data[at : at + 1] and data[at] & 0xC0 == 0x80:
                    at += 1


@functools.lru_cache(maxsize=512)
def compile_regex(pattern: str) -> Regex:
    """Compiles an expression, or returns it as it was compiled before.

    Raises:
        RegexError: RE2 does not read the expression, it is larger than it may be, or the package is not installed.
    """
    try:
        import re2
    except ImportError:
        raise RegexError(
            f"the package google-re2, which reads regular expressions: {INSTALL}", "got a regular expression"
        ) from None
    if len(pattern) > PATTERN_MAX_CHARS:
        seen = f"got one of {len(pattern)} characters"
        raise RegexError(f"a regular expression of at most {PATTERN_MAX_CHARS}", seen)
    options = re2.Options()
    for name, value in _OPTIONS.items():
        setattr(options, name, value)
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise _refused(error.args[0].decode(errors="replace")) from None
    except UnicodeEncodeError:
        raise _refused("half of a surrogate pair is no character") from None
    if compiled.programsize > PROGRAM_MAX:
        raise _refused("pattern too large")
    return Regex(compiled)


def _refused(reason: str) -> RegexError:
    instead = [advice for known, advice in _INSTEAD if re.match(known, reason)]
    return RegexError(f"a regular expression that RE2 reads ({'; '.join((reason, *instead))})")


def _encoded(text: str) -> bytes:
    """Returns UTF-8. Half of a surrogate pair becomes U+FFFD, which `.` matches: it takes no name out of a filter."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
