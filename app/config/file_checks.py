"""Checks of the keys about a server's files: adapters, artifact roots and shared folders."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final

from ...core.base.name_filter import NameFilter
from ...core.base.plan import Deliver, LocatorMode
from ..base.problem import Problem
from .file_settings import Adapter, ArtifactProducerAdapter, OutputLocator, SharedFolder, UploadConsumerAdapter
from .settings import Server
from .value_checks import check_dotted, check_dotted_items, check_path, check_regex, usable_part

PATTERN_CHARACTERS: Final = frozenset("*?[")
_URI_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


def check_files(key: str, server: Server, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Yields the problems of all keys about a server's files.

    Args:
        is_sound: as for `checks.check`.
    """
    if is_sound(f"{key}.artifact_roots"):
        for i, root in enumerate(server.artifact_roots):
            yield from check_path(f"{key}.artifact_roots[{i}]", root)
        for i, root in enumerate(server.hard_linked_roots if is_sound(f"{key}.hard_linked_roots") else ()):
            if root not in server.artifact_roots:
                yield Problem(f"{key}.hard_linked_roots[{i}]", "one of artifact_roots", f"got {root!r}")
    for i, adapter in enumerate(server.adapters or ()):
        if is_sound(f"{key}.adapters[{i}]"):
            yield from _adapter(f"{key}.adapters[{i}]", adapter)
            if is_sound(f"{key}.tools"):
                yield from _hidden_tools(f"{key}.adapters[{i}]", adapter, usable_part(server.tools.selection))
    if is_sound(f"{key}.shared"):
        yield from _shared(f"{key}.shared", server.shared_folders)
    if is_sound(f"{key}.files") and is_sound(f"{key}.adapters") and not server.has_files:
        for name in ("shared", "stage"):
            if is_sound(f"{key}.{name}") and getattr(server, name) not in ((), None):
                yield Problem(f"{key}.{name}", "it beside adapters or files: auto only", "got it for others")


def _hidden_tools(key: str, adapter: Adapter, selection: NameFilter) -> Iterator[Problem]:
    for i, tool in enumerate(adapter.tools):
        if PATTERN_CHARACTERS.isdisjoint(tool) and not selection.admits(tool):
            yield Problem(f"{key}.tools[{i}]", "a tool that this server's tools.include and tools.exclude do not hide")


def _adapter(key: str, adapter: Adapter) -> Iterator[Problem]:
    if not adapter.tools:
        yield Problem(f"{key}.tools", "the name of at least one tool")
    for i, tool in enumerate(adapter.tools):
        if not tool.strip():
            yield Problem(f"{key}.tools[{i}]", "the name of a tool")
    if isinstance(adapter, UploadConsumerAdapter):
        yield from _consumer(key, adapter)
    else:
        yield from _producer(key, adapter)


def _consumer(key: str, adapter: UploadConsumerAdapter) -> Iterator[Problem]:
    at = f"{key}.file_path_argument"
    if not adapter.arguments:
        yield Problem(at, "at least one dotted path")
    for i, path in enumerate(adapter.arguments):
        yield from check_dotted_items(at if isinstance(adapter.file_path_argument, str) else f"{at}[{i}]", path)
    if _URI_SCHEME.fullmatch(adapter.uri_scheme) is None:
        yield Problem(f"{key}.uri_scheme", "a scheme such as upload://")
    if adapter.deliver is not None and adapter.uri_prefix is not None:
        right = Deliver.FILE_URI if adapter.uri_prefix else Deliver.PATH
        if adapter.deliver is not right:
            is_prefixed = str(adapter.uri_prefix).lower()
            yield Problem(f"{key}.deliver", f"{right.value}, for uri_prefix is {is_prefixed}; or no uri_prefix")


def _producer(key: str, adapter: ArtifactProducerAdapter) -> Iterator[Problem]:
    locator, at = adapter.output_locator, f"{key}.output_locator"
    modes, argument = locator.modes, adapter.output_path_argument
    yield from _modes(f"{at}.mode", locator)
    if argument is not None:
        yield from check_dotted(f"{key}.output_path_argument", argument)
    elif modes == (LocatorMode.NONE,):
        yield Problem(key, "output_path_argument, or another output_locator.mode", "no way to find the output")
    elif LocatorMode.STRUCTURED in modes and locator.output_path_key is None:
        yield Problem(f"{at}.output_path_key", "a dotted path into the structured result, for mode structured needs it")
    if locator.output_path_key is not None:
        yield from check_dotted_items(f"{at}.output_path_key", locator.output_path_key)
    for i, path in enumerate(locator.path_arguments):
        yield from check_dotted_items(f"{at}.path_arguments[{i}]", path)
    for i, regex in enumerate(locator.output_path_regexes):
        yield from check_regex(f"{at}.output_path_regexes[{i}]", regex)
    if not adapter.persist:
        for name in ("required", "move", "rewrite_text", "inline_text_bytes"):
            if getattr(adapter, name):
                yield Problem(f"{key}.{name}", "none of it beside persist: false, which takes nothing in")


def _modes(at: str, locator: OutputLocator) -> Iterator[Problem]:
    modes = locator.modes
    if not modes:
        yield Problem(at, "at least one mode")
    elif len(set(modes)) < len(modes):
        yield Problem(at, "each mode once")
    elif LocatorMode.NONE in modes and len(modes) > 1:
        yield Problem(at, "none alone, or other modes without it")


def _shared(key: str, folders: tuple[SharedFolder, ...]) -> Iterator[Problem]:
    here_seen: set[str] = set()
    there_seen: set[str] = set()
    for i, folder in enumerate(folders):
        at = f"{key}[{i}]" if len(folders) > 1 else key
        yield from check_path(f"{at}.here", folder.here)
        there = posixpath.normpath(folder.there)
        if not there.startswith("/") or "\0" in there:
            yield Problem(f"{at}.there", "an absolute path, as the server sees the folder", f"got {folder.there!r}")
        here = posixpath.normpath(folder.here)
        if here in here_seen or there in there_seen:
            yield Problem(at, "each folder once, on either side", f"got {folder.here} as {folder.there} again")
        here_seen.add(here)
        there_seen.add(there)
