"""The index of the tools of a catalogue: which of them a query in plain words is about.

A word of a query is a concept: itself, its synonyms, the words it is put together from, and, if nothing knows it, the
known words that are nearest to it. A tool gets the best of these, once. What many tools have counts little, so a verb
with its synonyms weighs less than a rare noun. A tool that has more of the concepts is ahead of others, and so is one
whose name they cover.

The index depends on the tools that are in it, and not on those that came and went.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Final

import msgspec

from .documents import impacts_of, name_words, read_definition
from .synonyms import GROUPS
from .words import STOP_WORDS, split_words, stem

TOOLS_PER_SERVER_MAX: Final = 1000
"""The tools of one server that are indexed; the largest real servers have some hundred. A real tool takes one to three
thousand bytes, and one whose words are all long and nobody else's thirty thousand. At it: further ones are not
found."""
QUERY_MAX_CHARS: Final = 4096
"""The characters of a query that are read; a request in full sentences has some hundred. At it: the rest is left
out."""
CONCEPTS_MAX: Final = 24
"""The different words of a query that are searched for. At it: those behind are left out."""
WORK_MAX: Final = 200_000
"""The entries of the index that a query looks at; usual queries look at some thousand. At it: the words behind are left
out."""
NEIGHBOURS_MAX: Final = 256
"""The known words with which an unknown one is compared, of those that begin with its first two letters. At it: the
others are not tried."""
HITS_MAX: Final = 50
"""The hits of one search. At it: the others are found with an offset."""

# What a term counts that stands for a word of a query, and what coverage is worth. Hits change little between half and
# twice of each.
_SYNONYM: Final = 0.6
_COMPOUND: Final = 0.8
_NEIGHBOUR: Final = 0.6
_CONCEPTS_COVERED: Final = 0.6
_NAME_COVERED: Final = 0.6
_MATCHED: Final = 1 << 24  # above any sum of impacts
_EXACT: Final = 1 << 40


class Hit(msgspec.Struct, frozen=True):
    """A tool that was found: the name that clients call, the alias of its server, and the bytes that were added."""

    name: str
    server: str
    definition: bytes


class Found(msgspec.Struct, frozen=True):
    """A page of hits, best first, and the offset of the next page, if there is one."""

    hits: tuple[Hit, ...]
    next_offset: int | None = None


class _Tool(msgspec.Struct, frozen=True, gc=False):
    server: str
    definition: bytes  # the caller's own object, and no copy
    words: int
    """Different words of the name."""


class Index:
    """An index of tools by their exposed names, which are unique: a later definition of a name replaces an earlier one.

    Args:
        groups: words that stand for each other, as in `synonyms`.
    """

    def __init__(self, groups: Iterable[str] = GROUPS) -> None:
        self._synonyms = _read_groups(tuple(groups))
        self._tools: dict[str, _Tool] = {}
        self._servers: dict[str, dict[str, None]] = {}
        self._spellings: dict[str, dict[str, None]] = {}  # names by their words, put together
        self._postings: dict[str, dict[str, int]] = {}  # impacts by stem and name
        self._vocabulary: list[str] = []  # the stems, sorted

    def __len__(self) -> int:
        return len(self._tools)

    def add(self, server: str, definition: bytes) -> bool:
        """Adds a tool of the server with this alias. `definition` is its entry of `tools/list`, with the exposed name.

        Returns False, and changes nothing, if the entry cannot be read or the server has `TOOLS_PER_SERVER_MAX` tools.
        """
        tool = read_definition(definition)
        names = self._servers.get(server, {})
        if tool is None or (len(names) >= TOOLS_PER_SERVER_MAX and tool.name not in names):
            return False
        self.remove(tool.name)
        words = name_words(server, tool.name)
        count = len(set(map(stem, words)) - STOP_WORDS)
        self._tools[tool.name] = _Tool(server, definition, max(1, count))
        self._servers.setdefault(server, {})[tool.name] = None
        self._spellings.setdefault("".join(words), {})[tool.name] = None
        for term, impact in impacts_of(server, tool).items():
            if term not in self._postings:
                insort(self._vocabulary, term)
            self._postings.setdefault(term, {})[tool.name] = impact
        return True

    def remove(self, name: str) -> bool:
        """Removes a tool. Returns False if there is none of this name."""
        tool = self._tools.pop(name, None)
        definition = None if tool is None else read_definition(tool.definition)
        if tool is None or definition is None:
            return False
        _discard(self._servers, tool.server, name)
        _discard(self._spellings, "".join(name_words(tool.server, name)), name)
        for term in impacts_of(tool.server, definition):
            _discard(self._postings, term, name)
            if term not in self._postings:
                del self._vocabulary[bisect_left(self._vocabulary, term)]
        return True

    def replace(self, server: str, definitions: Iterable[bytes]) -> None:
        """Makes `definitions` the tools of a server. Tools whose bytes are the same are not touched; of two with one
        name the first counts, and what cannot be read is left out."""
        wanted: dict[str, bytes] = {}
        for definition in definitions:
            tool = read_definition(definition)
            if tool is not None:
                wanted.setdefault(tool.name, definition)
        for name in [name for name in self._servers.get(server, ()) if name not in wanted]:
            self.remove(name)
        for name, definition in wanted.items():
            known = self._tools.get(name)
            if known is None or (known.server, known.definition) != (server, definition):
                self.add(server, definition)

    def search(
        self,
        query: str,
        *,
        server: str | None = None,
        limit: int = 8,
        offset: int = 0,
        allowed: Callable[[str], bool] | None = None,
    ) -> Found:
        """Returns the tools that `query` is about, best first, those of equal score by name. The tool whose exposed
        name is the query comes first, then those whose own name has its words and no others. An empty query, or `*`,
        finds all tools, by name.

        Args:
            query: plain words, or a name.
            server: only tools of the server with this alias.
            limit: the hits of a page, 1 to `HITS_MAX`.
            offset: hits to leave out.
            allowed: True for the name of a tool that the caller may know. The others are not found, and count only in
                how rare a word is.
        """
        text = query.strip()
        is_all = text in ("", "*")
        scores = dict.fromkeys(self._tools, 0) if is_all else self._scores(split_words(query[:QUERY_MAX_CHARS]))
        if text in self._tools:
            scores[text] = 2 * _EXACT
        if server is not None:
            names = self._servers.get(server, {})
            scores = {name: score for name, score in scores.items() if name in names}
        offset, limit = max(0, offset), max(1, min(limit, HITS_MAX))
        hits: list[Hit] = []
        for at, name in enumerate(_ranked(scores, allowed)):
            if at == offset + limit:
                return Found(tuple(hits), at)
            if at >= offset:
                hits.append(Hit(name, self._tools[name].server, self._tools[name].definition))
        return Found(tuple(hits))

    def _scores(self, words: list[str]) -> dict[str, int]:
        """Returns the score of each tool that has any concept of a query."""
        sums: dict[str, float] = {}
        named: Counter[str] = Counter()
        total, work = 0, 0
        for options in self._concepts(words):
            if work > WORK_MAX:
                break
            best: dict[str, float] = {}
            in_name: set[str] = set()
            for term, weight in options.items():
                postings = self._find(term)
                if not postings:
                    continue
                work += len(postings)
                if work > WORK_MAX:
                    break
                in_name.update([name for name, impact in postings.items() if impact & 1])
                if not best:
                    best = {name: weight * impact for name, impact in postings.items()}
                    continue
                for name, impact in postings.items():
                    if weight * impact > best.get(name, 0.0):
                        best[name] = weight * impact
            if not best:
                continue
            rarity = round(64 * math.log(1 + (len(self._tools) - len(best) + 0.5) / (len(best) + 0.5))) or 1
            total += rarity
            for name, value in best.items():  # one number for both sums, of values and of rarities, to look it up once
                sums[name] = sums.get(name, 0.0) + rarity * (_MATCHED + value)
            named.update(in_name)
        scores = {}
        for name, both in sums.items():
            covered, value = divmod(both, _MATCHED)
            scores[name] = round(value * (1 - _CONCEPTS_COVERED + _CONCEPTS_COVERED * covered / total))
        for name, count in named.items():
            scores[name] += round(scores[name] * _NAME_COVERED * min(1.0, count / self._tools[name].words))
        for name in self._spellings.get("".join(words), ()) if words else ():
            scores[name] = scores.get(name, 0) + _EXACT
        return scores

    def _find(self, term: str) -> Mapping[str, int]:
        """Returns the impacts of a term: of one stem, or of those, joined by `_`, that a tool has all."""
        if "_" not in term:
            return self._postings.get(term, {})
        first, *others = (self._postings.get(part, {}) for part in term.split("_"))
        for other in others:
            first = {name: min(impact, other[name]) for name, impact in first.items() if name in other}
        return first

    def _concepts(self, words: list[str]) -> Iterator[dict[str, float]]:
        """Yields the terms that stand for each word of a query, with their weights."""
        stems = list(map(stem, words))
        joined: dict[int, list[str]] = {}
        for at, (word, following) in enumerate(pairwise(words)):
            terms = [*self._synonyms.get(f"{stems[at]}_{stems[at + 1]}", ())]
            if min(len(word), len(following)) > 1 and (whole := stem(word + following)) in self._postings:
                terms.append(whole)
            for each in (at, at + 1) if terms else ():
                joined.setdefault(each, []).extend(terms)
        is_empty = STOP_WORDS.issuperset(words)
        seen: set[str] = set()
        for at, (word, term) in enumerate(zip(words, stems, strict=True)):
            is_sought = is_empty or word not in STOP_WORDS
            if term in seen or not (is_sought or at in joined):
                continue
            if len(seen) == CONCEPTS_MAX:
                return
            seen.add(term)
            options = dict.fromkeys(self._synonyms.get(term, ()), _SYNONYM) if is_sought else {}
            options.update(dict.fromkeys(joined.get(at, ()), _COMPOUND))
            if is_sought and term in self._postings:
                options[term] = 1.0
            options = options or self._neighbours(word, term)
            yield options

    def _neighbours(self, word: str, term: str) -> dict[str, float]:
        """Returns known terms near an unknown word: two words that it consists of, those that it shortens or that
        shorten it, and those that it may be a misspelling of."""
        found: dict[str, float] = {}
        for cut in range(3, len(word) - 2):
            first, second = stem(word[:cut]), stem(word[cut:])
            if first in self._postings and second in self._postings:
                found[f"{first}_{second}"] = _COMPOUND
        start = bisect_left(self._vocabulary, term[:2])
        for other in self._vocabulary[start : start + NEIGHBOURS_MAX] if len(term) > 2 else ():
            if not other.startswith(term[:2]):
                break
            is_short = other.startswith(term) or (len(other) > 3 and term.startswith(other))
            if is_short or (len(term) > 3 and _is_one_edit(term, other)):
                found[other] = _NEIGHBOUR
        return found


def _is_one_edit(first: str, second: str) -> bool:
    """True if one letter added or left out, or two neighbours exchanged, makes one word of the other; in words of six
    letters and more also one letter changed, which in shorter ones often makes another English word."""
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1:
        return False
    same = next((at for at, (one, other) in enumerate(zip(short, long, strict=False)) if one != other), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    is_exchanged = short[same : same + 2] == long[same : same + 2][::-1] and short[same + 2 :] == long[same + 2 :]
    return is_exchanged or (len(long) > 5 and short[same + 1 :] == long[same + 1 :])


def _ranked(scores: Mapping[str, int], allowed: Callable[[str], bool] | None) -> Iterator[str]:
    """Yields the names that are allowed, by score and then by name."""
    # Sorting by the score alone needs no tuple for each name, and few of them are looked at.
    for _, names in groupby(sorted(scores, key=scores.__getitem__, reverse=True), key=scores.__getitem__):
        yield from (name for name in sorted(names) if allowed is None or allowed(name))


def _discard(table: dict[str, dict[str, Any]], key: str, name: str) -> None:
    """Removes a name from an entry, and the entry with its last name."""
    del table[key][name]
    if not table[key]:
        del table[key]


@functools.lru_cache(maxsize=8)
def _read_groups(groups: tuple[str, ...]) -> dict[str, dict[str, None]]:
    """Returns for each term the terms that stand for it, in the order of the groups. All are stems. Indexes with the
    same groups share the table."""
    table: dict[str, dict[str, None]] = {}
    for group in groups:
        before, colon, behind = ([_stems(term) for term in part.split()] for part in group.partition(":"))
        for term in behind if colon else before:
            table.setdefault(term, {}).update(dict.fromkeys(other for other in before if other != term))
    return table


def _stems(term: str) -> str:
    return "_".join(map(stem, term.split("_")))
