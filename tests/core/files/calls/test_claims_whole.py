"""Tests of all claims together: in which order they come, whether each is a guess, and whether its file must have
changed."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.plan import AutoFiles, LocatorMode, OutputLocator
from isthmus.core.base.storage import InlineSource
from isthmus.core.files.calls.claims import (
    STRINGS_MAX,
    ClaimedPaths,
    argument_paths,
    claims_of,
    contents_of,
    strings_of,
)
from isthmus.core.files.calls.paths_in_text import PATH_MAX_CHARS

LINKED = {"type": "resource_link", "uri": "file:///l", "name": "l"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///h", "text": "x"}}
FOREIGN = {"type": "resource_link", "uri": "demo://t", "name": "t"}
TEXT = {"type": "text", "text": "wrote /t.txt"}
RESULT = {"content": [LINKED, EMBEDDED, FOREIGN, TEXT], "structuredContent": {"p": "/s.txt"}}
ARGUMENTS = {"p": "/a.txt", "q": "b.txt"}
LISTED = [mode for mode in LocatorMode if mode is not LocatorMode.NONE]


def claimed(
    how: OutputLocator | AutoFiles,
    result: Any = RESULT,
    arguments: Any = ARGUMENTS,
    allocated: str | None = None,
    limit: int = 8,
) -> ClaimedPaths:
    given_arguments = None if arguments is None else json.dumps(arguments).encode()
    return claims_of(json.dumps(result).encode(), how, arguments=given_arguments, allocated=allocated, limit=limit)


def judged(claims: ClaimedPaths) -> list[tuple[str, bool, bool]]:
    """The likeliest spelling of each name, whether it is a guess, and whether its file must have changed."""
    assert all(claims.named)
    return [(n[0], *rest) for n, *rest in zip(claims.named, claims.is_guess, claims.if_changed, strict=True)]


@each_row("own", [(), ("p",)])
@each_row("regexes", [(), (r"/t\S+",)])
@each_row("modes", [modes for count in range(len(LISTED) + 1) for modes in itertools.combinations(LISTED, count)])
def test_each_mode_looks_at_its_own_place(
    modes: tuple[LocatorMode, ...], regexes: tuple[str, ...], own: tuple[str, ...]
) -> None:
    """Several modes find what each finds, in one order: the allocated path, structured values, arguments, links and
    text. Matches of built-in rules are guesses. A file named in an argument may have existed before, so it must have
    changed."""
    how = OutputLocator(mode=modes, output_path_key="p", output_path_regexes=regexes, path_arguments=own)
    expected: list[tuple[str, bool, bool]] = [("/o.txt", False, False)]
    if LocatorMode.STRUCTURED in modes:
        expected.append(("/s.txt", False, False))
    if LocatorMode.ARGUMENT in modes:
        expected.append(("/a.txt", not own, True))
        expected += [] if own else [("b.txt", True, True)]
    if LocatorMode.REGEX in modes or LocatorMode.RESOURCE_LINK in modes:
        expected += [("/l", False, False), ("/h", False, False)]
    if LocatorMode.REGEX in modes:
        expected.append(("/t.txt", not regexes, False))
    found = claimed(how, allocated="/o.txt")
    assert judged(found) == expected
    assert found.wants_areas is (LocatorMode.CHANGED in modes)
    assert found.links == (("demo://t",) if LocatorMode.RESOURCE_LINK in modes else ())
    assert [source.filename for source in found.inline] == ["h"] * (LocatorMode.EMBEDDED in modes)


def test_the_claims_without_rules() -> None:
    """Each file must have changed. Only the allocated path and file links are no guesses."""
    found = claimed(AutoFiles(), allocated="/o.txt")
    assert judged(found) == [
        ("/o.txt", False, False),
        ("/s.txt", True, True),
        ("/a.txt", True, True),
        ("b.txt", True, True),
        ("/l", False, True),
        ("/h", False, True),
        ("/t.txt", True, True),
    ]
    assert found.wants_areas
    assert (found.links, found.inline) == ((), ())


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_each_place_has_a_limit_of_its_own(limit: int) -> None:
    """The limit counts for each place by itself, and the first claims are kept."""
    numbers = range(3)
    content = [
        *({"type": "resource_link", "uri": f"file:///l{n}", "name": "l"} for n in numbers),
        *({"type": "resource_link", "uri": f"demo://d{n}", "name": "d"} for n in numbers),
        *({"type": "text", "text": f"wrote /t/{n}.txt"} for n in numbers),
        *({"type": "image", "data": "AAAA", "mimeType": "image/png"} for _ in numbers),
    ]
    result = {"content": content, "structuredContent": {"p": [f"/s/{n}" for n in numbers]}}
    arguments = {str(n): f"/a/{n}" for n in numbers}
    how = OutputLocator(mode=tuple(LISTED), output_path_key="p")
    shown = range(limit)
    parts = ["/s/{}", "/a/{}", "/l{}", "/t/{}.txt"]
    expected = [part.format(n) for part in parts for n in shown]
    found = claimed(how, result, arguments, limit=limit)
    assert [name for name, *_ in judged(found)] == expected
    assert found.links == tuple(f"demo://d{n}" for n in shown)
    assert [source.filename for source in found.inline] == [f"image-{n + 1}.png" for n in shown]
    assert [name for name, *_ in judged(claimed(AutoFiles(), result, arguments, limit=limit))] == expected


@pytest.mark.parametrize("first", [(a, b) for a in (True, False) for b in (True, False)])
def test_claims_of_one_path_are_merged(first: tuple[bool, bool]) -> None:
    """The path is claimed once, at its first place. It is a guess if all claims are guesses, and must have changed if
    all say so."""
    modes = {
        (True, True): (LocatorMode.ARGUMENT,),
        (True, False): (LocatorMode.REGEX,),
        (False, False): (LocatorMode.STRUCTURED,),
    }.get(first, ())
    how = OutputLocator(
        mode=(*modes, LocatorMode.ARGUMENT),
        output_path_key="p",
        path_arguments=("p",) if first == (False, True) else (),
    )
    result = {"content": [{"type": "text", "text": "wrote /x.txt"}], "structuredContent": {"p": "/x.txt"}}
    assert judged(claimed(how, result, {"p": "/x.txt"})) == [("/x.txt", *first)]


# --- Structured content, without rules --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("/a b.txt", ["/a b.txt"]),
        ("a.txt", ["a.txt"]),
        ("wrote a.txt", ["wrote a.txt", "a.txt"]),
        ("~/a b.txt", ["~/a b.txt"]),
        ("./a b.txt", ["./a b.txt"]),
        ("see /a/b.txt for all of the rest of what there is to say", ["/a/b.txt"]),
        ("nothing", []),
        ({"deep": [{"er": "/a"}]}, ["/a"]),
        (["b.txt", "/a"], ["b.txt", "/a"]),
    ],
)
def test_a_string_is_a_path_or_mentions_some(value: Any, names: list[str]) -> None:
    found = claimed(AutoFiles(), {"structuredContent": {"v": value}}, None)
    assert [name for name, *_ in judged(found)] == names


# --- Content ----------------------------------------------------------------------------------------------------------


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("block", "source"),
    [
        ({"type": "image", "data": encoded(b"x"), "mimeType": "image/png"}, (b"x", "image-1.png", "image/png")),
        ({"type": "image", "data": encoded(b"x")}, (b"x", "image-1.bin", None)),
        ({"type": "audio", "data": encoded(b"x"), "mimeType": "audio/wav"}, (b"x", "audio-1.wav", "audio/wav")),
        ({"type": "image", "data": "eA\n==", "mimeType": "a/none"}, (b"x", "image-1.bin", "a/none")),
        ({"type": "image", "data": "eA==", "uri": "u://x/y.png"}, (b"x", "image-1.bin", None)),
        ({"type": "image", "text": "x"}, None),
        ({"type": "image", "blob": "eA=="}, None),
        ({"type": "image", "data": "eA="}, None),
        ({"type": "image"}, None),
        ({"type": "text", "text": "x", "data": "eA=="}, None),
        ({"data": "eA=="}, None),
    ],
)
def test_the_source_of_a_block(block: Any, source: tuple[bytes, str, str | None] | None) -> None:
    """The source has the bytes, a filename, and the MIME type."""
    found = claimed(OutputLocator(mode=LocatorMode.EMBEDDED), {"content": [block]})
    assert found.inline == (() if source is None else (InlineSource(*source),))


@pytest.mark.parametrize(
    ("item", "source"),
    [
        ({"uri": "u://x/a.csv", "text": "é"}, ("é".encode(), "a.csv", None)),
        ({"uri": "u://x/a%20b.csv?c#d", "text": "x", "mimeType": "text/csv"}, (b"x", "a b.csv", "text/csv")),
        ({"text": "x"}, (b"x", "resource-1.txt", None)),
        ({"blob": "eA=="}, (b"x", "resource-1.bin", None)),
        ({"blob": "eA==", "mimeType": "image/png"}, (b"x", "resource-1.png", "image/png")),
        ({"uri": "u://x/", "text": "x"}, (b"x", "resource-1.txt", None)),
        ({"uri": "u://[x/a.csv", "text": "x"}, (b"x", "resource-1.txt", None)),
        ({"text": "x", "blob": "eQ=="}, (b"x", "resource-1.txt", None)),
        ({"text": ""}, (b"", "resource-1.txt", None)),
        ({"uri": "u://x/a.csv"}, None),
        ({"data": "eA=="}, None),
    ],
)
def test_the_source_of_a_resource(item: Any, source: tuple[bytes, str, str | None] | None) -> None:
    """The resource is embedded in a result, or read from the server."""
    expected = [] if source is None else [InlineSource(*source)]
    assert contents_of(json.dumps({"contents": [item]}).encode()) == expected
    found = claimed(OutputLocator(mode=LocatorMode.EMBEDDED), {"content": [{"type": "resource", "resource": item}]})
    assert list(found.inline) == expected


def test_blocks_of_each_kind_are_counted() -> None:
    """Blocks without content do not count."""
    image, sound = {"type": "image", "data": "eA=="}, {"type": "audio", "data": "eA=="}
    content = [image, {"type": "image"}, sound, image, sound, {"type": "resource", "resource": {"blob": "eA=="}}]
    found = claimed(OutputLocator(mode=LocatorMode.EMBEDDED), {"content": content})
    names = [source.filename for source in found.inline]
    assert names == ["image-1.bin", "audio-1.bin", "image-2.bin", "audio-2.bin", "resource-1.bin"]


@pytest.mark.parametrize("off", [0, 1])
def test_a_link_may_be_as_long_as_a_path(off: int) -> None:
    uri = "demo://" + "x" * (PATH_MAX_CHARS - 7 + off)
    content = [{"type": "resource_link", "uri": uri}]
    found = claimed(OutputLocator(mode=LocatorMode.RESOURCE_LINK), {"content": content})
    assert found.links == (() if off else (uri,))


@pytest.mark.parametrize("uri", ["file:///a", "FILE:///a", "artifact://sessions/s/a/b", "Artifact://x"])
def test_file_uris_and_artifacts_are_not_read_from_the_server(uri: str) -> None:
    content = [{"type": "resource_link", "uri": uri}, {"type": "resource", "resource": {"uri": "demo://held"}}]
    assert claimed(OutputLocator(mode=LocatorMode.RESOURCE_LINK), {"content": content}).links == ()


# --- Arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names", "paths"),
    [
        ({"a": "x", "b": "/y"}, (), ["/y", "x"]),
        ({"a": "x", "b": "/y"}, ("a", "b"), ["x", "/y"]),
        ({"a": "x", "b": "/y"}, ("c",), []),
        ({"a": ["/1", 2, "/3"]}, ("a",), ["/1", "/3"]),
        ({"a": ["/1", "/1", "/2"]}, (), ["/1", "/2"]),
        ({"a": "upload://sessions/s/u", "b": "artifact://sessions/s/a/b"}, (), []),
        ({"a": "/x\n/y", "b": "/z"}, (), ["/z", "/x", "/y"]),
        ({"a": "https://h/x"}, (), []),
        (["/x"], (), ["/x"]),
    ],
)
def test_the_paths_in_arguments(arguments: Any, names: tuple[str, ...], paths: list[str]) -> None:
    """Strings that read as paths come first, unless the rules name the arguments. Each path is claimed once."""
    data = json.dumps(arguments).encode()
    assert [read[0] for read in argument_paths(data, names, 8)] == paths
    for limit in range(1, 4):
        assert [read[0] for read in argument_paths(data, names, limit)] == paths[:limit]


def test_strings_are_counted_and_nothing_else_is() -> None:
    """Numbers and objects between them do not count against the limit."""
    mixed = [item for n in range(STRINGS_MAX + 1) for item in (n, {"s": str(n)}, None)]
    assert strings_of(json.dumps(mixed).encode()) == [str(n) for n in range(STRINGS_MAX)]
    assert strings_of(b'"a"') == ["a"]
    assert strings_of(b'{"b":"1","a":["2",{"c":"3"}],"d":"4"}') == ["1", "2", "3", "4"]
    assert strings_of(b'"\\ud83d!"') == ["\ufffd!"]
