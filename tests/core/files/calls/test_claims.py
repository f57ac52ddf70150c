"""Tests of claims: the files that a result names are found in all of its places, and nowhere else."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base.plan import AutoFiles, LocatorMode, OutputLocator
from isthmus.core.base.storage import InlineSource
from isthmus.core.files.calls import claims
from isthmus.core.files.calls.claims import STRINGS_MAX, ClaimedPaths, argument_paths, claims_of, strings_of

AUTO = AutoFiles()


def rules(*modes: LocatorMode, key: str | None = None, regexes: tuple[str, ...] = (), **more: object) -> OutputLocator:
    return OutputLocator(mode=modes, output_path_key=key, output_path_regexes=regexes, **more)  # type: ignore[arg-type]


def result_of(*texts: str, **more: object) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], **more}).encode()


def claimed(
    result: bytes,
    how: OutputLocator | AutoFiles,
    arguments: object = None,
    allocated: str | None = None,
    limit: int = 8,
) -> ClaimedPaths:
    given_arguments = None if arguments is None else json.dumps(arguments).encode()
    return claims_of(result, how, arguments=given_arguments, allocated=allocated, limit=limit)


def test_each_match_of_a_pattern_is_a_file() -> None:
    found = claimed(result_of("saved /a/1.txt", "and /a/2.txt"), rules(LocatorMode.REGEX, regexes=(r"/a/\S+",)))
    assert found == ClaimedPaths(
        (("/a/1.txt",), ("/a/2.txt",)), is_guess=(False, False), if_changed=(False, False), wants_areas=False
    )


def test_a_match_of_the_built_in_patterns_is_a_guess() -> None:
    found = claimed(result_of("saved /a/1.txt"), rules(LocatorMode.REGEX))
    assert found.named == (("/a/1.txt",),)
    assert found.is_guess == (True,)


def test_structured_values_are_a_file_each() -> None:
    structured = {
        "files": [{"path": "/a/my 1.png"}, {"path": 5}, {"path": "file:///a/2%20b.png"}, {}],
        "one": "/x",
        "all": ["/x", 7, "/y"],
    }
    result = result_of(structuredContent=structured)
    several = claimed(result, rules(LocatorMode.STRUCTURED, key="files[*].path"))
    assert several.named == (("/a/my 1.png",), ("/a/2 b.png",))
    assert several.is_guess == (False, False)
    assert claimed(result, rules(LocatorMode.STRUCTURED, key="files[*].path"), limit=1).named == several.named[:1]
    assert claimed(result, rules(LocatorMode.STRUCTURED, key="one")).named == (("/x",),)
    assert claimed(result, rules(LocatorMode.STRUCTURED, key="all")).named == (("/x",), ("/y",))
    assert claimed(result, rules(LocatorMode.STRUCTURED, key="one.deeper")).named == ()


def block(kind: str, data: bytes, mime: str) -> dict[str, object]:
    return {"type": kind, "data": base64.b64encode(data).decode(), "mimeType": mime}


def test_every_embedded_block_is_taken_from_the_message() -> None:
    content = [
        block("image", b"one", "image/png"),
        block("audio", b"sound", "audio/wav"),
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "demo://x/a%20b.csv?v=1", "mimeType": "text/csv", "text": "é"}},
        {"type": "resource_link", "uri": "demo://x/y", "name": "y"},
    ]
    result = json.dumps({"content": content}).encode()
    inline = (
        InlineSource(b"one", "image-1.png", "image/png"),
        InlineSource(b"sound", "audio-1.wav", "audio/wav"),
        InlineSource("é".encode(), "a b.csv", "text/csv"),
    )
    assert claimed(result, rules(LocatorMode.EMBEDDED)) == ClaimedPaths(inline=inline)
    assert claimed(result, rules(LocatorMode.EMBEDDED), limit=2).inline == inline[:2]
    assert claimed(result, AUTO).inline == ()


def test_links_are_files_or_resources_of_the_server() -> None:
    content = [
        {"type": "resource_link", "uri": "demo://x/y", "name": "y"},
        {"type": "resource_link", "uri": "demo://x/y", "name": "again"},
        {"type": "resource_link", "uri": "file:///a/my%20b.png", "name": "b"},
        {"type": "resource_link", "uri": "artifact://sessions/s/a/b", "name": "ours"},
        {"type": "resource", "resource": {"uri": "File:///a/c.txt", "text": "c"}},
        {"type": "resource", "resource": {"uri": "demo://x/z", "text": "c"}},
    ]
    result = json.dumps({"content": content}).encode()
    found = claimed(result, rules(LocatorMode.RESOURCE_LINK))
    assert found.links == ("demo://x/y",)
    assert found.named == (("/a/my b.png",), ("/a/c.txt",))
    assert claimed(result, AUTO).named == found.named
    assert claimed(result, AUTO).links == ()


def test_an_allocated_path_comes_first_and_counts_in_every_mode() -> None:
    result = result_of("saved to /a/out.png and not /o/x.png")
    for mode in LocatorMode:
        found = claimed(result, rules(mode), allocated="/o/x.png")
        assert found.named[0] == ("/o/x.png",)
        assert found.is_guess[0] is found.if_changed[0] is False
    assert claimed(result, rules(LocatorMode.REGEX), allocated="/o/x.png").named[:2] == (("/o/x.png",), ("/a/out.png",))


def test_arguments_name_files_that_count_if_they_changed() -> None:
    arguments = {"title": "T", "out": {"path": "x.docx"}, "n": 3}
    named = claimed(b"{}", rules(LocatorMode.ARGUMENT, path_arguments=("out.path",)), arguments)
    assert (named.named, named.is_guess, named.if_changed) == ((("x.docx",),), (False,), (True,))
    found = claimed(b"{}", rules(LocatorMode.ARGUMENT), arguments)
    assert (found.named, found.is_guess, found.if_changed) == ((("x.docx",), ("T",)), (True, True), (True, True))


def test_changes_are_looked_for_in_the_folders() -> None:
    assert claimed(b"{}", rules(LocatorMode.CHANGED, LocatorMode.REGEX)) == ClaimedPaths(wants_areas=True)
    assert not claimed(b"{}", rules(LocatorMode.REGEX)).wants_areas


def test_auto_looks_everywhere_and_guesses() -> None:
    result = result_of("wrote ./t.txt", structuredContent={"path": "/s/a b.png", "message": "see /s/log.txt", "n": 1})
    found = claimed(result, AUTO, {"filename": "arg.pdf", "url": "http://h/a.png"})
    assert found.named == (("/s/a b.png",), ("see /s/log.txt",), ("/s/log.txt",), ("arg.pdf",), ("./t.txt",))
    assert set(found.is_guess) == set(found.if_changed) == {True}
    assert found.wants_areas


def test_a_path_found_twice_counts_once_and_is_a_guess_only_if_both_are() -> None:
    how = rules(LocatorMode.STRUCTURED, LocatorMode.ARGUMENT, LocatorMode.REGEX, key="p")
    found = claimed(result_of("wrote /a/x.png", structuredContent={"p": "/a/x.png"}), how, {"p": "/a/x.png"})
    assert (found.named, found.is_guess, found.if_changed) == ((("/a/x.png",),), (False,), (False,))


@pytest.mark.parametrize("how", [AUTO, rules(*LocatorMode, key="p")])
def test_a_failed_call_claims_nothing(how: OutputLocator | AutoFiles) -> None:
    result = result_of("Access denied: /etc/hostname", isError=True, structuredContent={"p": "/a"})
    assert claimed(result, how, {"p": "/a"}, "/o/x.png") == ClaimedPaths()


@pytest.mark.parametrize("how", [AUTO, rules(*LocatorMode, key="p")])
@pytest.mark.parametrize(
    "result",
    [
        b"{}",
        b'{"content":[]}',
        b'{"content":null,"structuredContent":null}',
        b'{"content":{"type":"text"},"structuredContent":5}',
        b'{"content":[5,null,[],{"type":"text"},{"type":5,"text":"/a"},{"text":"/a/b.png"},{"type":"resource"}]}',
        b'{"content":[{"type":"image","data":"","data":"AAAA"},{"type":"resource_link","uri":7}]}',
        b'{"content":[],"content":[{"type":"text","text":"/a/b.png"}]}',
        b"5",
        b"[]",
        b'"/a/b.png"',
        b"",
    ],
)
def test_a_result_of_any_shape_may_claim_nothing(how: OutputLocator | AutoFiles, result: bytes) -> None:
    found = claimed(result, how)
    assert (found.named, found.inline, found.links) == ((), (), ())


def test_half_a_surrogate_pair_hides_no_path() -> None:
    result = b'{"content":[{"type":"text","text":"cut \\ud83d and /a/b.png"}],"structuredContent":["\\ud83d","/a/c"]}'
    assert claimed(result, AUTO).named == (("/a/c",), ("/a/b.png",))


# --- Arguments --------------------------------------------------------------------------------------------------------


def test_paths_come_before_other_strings_of_the_arguments() -> None:
    arguments = json.dumps(
        {
            "query": "hello",
            "paths": ["/w/a.txt", "sub/b.txt", {"c": "file:///w/c%20d"}],
            "web": "https://h/x.png",
            "text": "two\nlines.txt",
            "upload": "upload://sessions/s/u",
            "artifact": "artifact://sessions/s/a/x.png",
            "long": "x" * 5000,
            "again": "hello",
        }
    ).encode()
    found = argument_paths(arguments, (), 8)
    assert found == [("/w/a.txt",), ("sub/b.txt",), ("/w/c d",), ("hello",)]
    assert argument_paths(arguments, (), 2) == found[:2]
    assert argument_paths(arguments, ("paths", "query"), 8) == [("/w/a.txt",), ("sub/b.txt",), ("hello",)]
    assert argument_paths(arguments, ("paths[*].c", "query.deeper"), 8) == [("/w/c d",)]


@pytest.mark.parametrize("arguments", [None, b"", b"5", b"{", b'{"a":{"b":1,"b":2}}', b"[" * 100_000])
def test_arguments_that_cannot_be_read_name_nothing(arguments: bytes | None) -> None:
    assert argument_paths(arguments, (), 8) == []
    assert argument_paths(arguments, ("a.b",), 8) == []


def test_only_so_many_strings_are_looked_at() -> None:
    data = json.dumps([str(number) for number in range(STRINGS_MAX + 5)]).encode()
    assert strings_of(data) == [str(number) for number in range(STRINGS_MAX)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)


@given(value=JSON, indent=st.sampled_from([None, 1]))
def test_strings_of_large_values_are_found_without_reading_the_whole(value: object, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "has_few_values", lambda data: False)
        found = strings_of(data)
    assert found == strings_of(data)


@given(value=JSON)
def test_strings_are_the_values_in_order(value: object) -> None:
    def plain(part: object) -> list[str]:
        if isinstance(part, dict):
            part = list(part.values())
        if isinstance(part, list):
            return [text for below in part for text in plain(below)]
        return [part] if isinstance(part, str) else []

    assert strings_of(json.dumps(value).encode()) == plain(value)


@given(result=JSON, arguments=JSON, limit=st.integers(1, 3))
def test_claims_are_bounded_whatever_comes(result: object, arguments: object, limit: int) -> None:
    found = claimed(json.dumps({"structuredContent": result}).encode(), AUTO, arguments, limit=limit)
    assert len(found.named) == len(found.is_guess) == len(found.if_changed) <= 4 * limit


def test_only_results_up_to_a_size_are_searched_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of("saved /a/1.txt")
    monkeypatch.setattr(claims, "GUESSED_MAX_BYTES", len(result))
    assert claimed(result, AUTO, {"to": "/a/2.txt"}).named == (("/a/2.txt",), ("/a/1.txt",))
    monkeypatch.setattr(claims, "GUESSED_MAX_BYTES", len(result) - 1)
    assert claimed(result, AUTO, {"to": "/a/2.txt"}).named == (("/a/2.txt",),)
    assert claimed(result, AUTO).wants_areas
    assert claimed(result, rules(LocatorMode.REGEX)).named == (("/a/1.txt",),)
