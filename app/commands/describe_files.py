"""Describes how the files of a server are handled, in a line for each adapter."""

from __future__ import annotations

from typing import Final

from ...core.base.plan import Deliver, LocatorMode
from ...core.files.calls.offers import put_name
from ..base.sizes import format_size
from ..config.file_settings import ArtifactProducerAdapter, Files, UploadConsumerAdapter
from ..config.settings import Server, Settings
from .output_folders import output_folder_hints

_DELIVERED: Final = {
    Deliver.PATH: "",
    Deliver.FILE_URI: ", given as file:// URIs",
    Deliver.URL: ", given as signed links",
    Deliver.DATA_URI: ", given as data: URIs",
    Deliver.BASE64: ", given as base64",
    Deliver.TEXT: ", given as text",
}


def file_lines(settings: Settings, server: Server) -> list[str]:
    lines = []
    for adapter in server.adapters:
        if isinstance(adapter, UploadConsumerAdapter):
            lines.append(_consumer(settings, server, adapter))
        else:
            lines.append(_producer(settings, adapter))
    if server.auto_files is not None:
        lines += _auto(settings, server, server.auto_files)
    return lines


def _consumer(settings: Settings, server: Server, adapter: UploadConsumerAdapter) -> str:
    tools, is_one = ", ".join(adapter.tools), len(adapter.tools) == 1
    if not settings.uploads.enabled:
        return f"{tools}: handles are not taken, uploads.enabled is switched off"
    arguments = ", ".join(adapter.arguments)
    how = f"{adapter.uri_scheme} handles in {arguments} (from {put_name(server.id)}){_DELIVERED[adapter.delivery]}"
    return f"{tools} {'takes' if is_one else 'take'} {how}"


def _producer(settings: Settings, adapter: ArtifactProducerAdapter) -> str:
    tools, is_one = ", ".join(adapter.tools), len(adapter.tools) == 1
    if not settings.artifacts.enabled:
        return f"{tools}: files are not taken in, artifacts.enabled is switched off"
    if not adapter.persist:
        return f"{tools}: files are not taken in, persist is switched off"
    is_listed = settings.artifacts.expose_as_resources and adapter.expose_as_resource
    what = "artifact:// resources" if is_listed else "artifacts, not listed as resources"
    modes = [mode.value for mode in adapter.output_locator.modes if mode is not LocatorMode.NONE]
    where = adapter.output_path_argument or ", ".join(modes)
    return f"{tools} {'makes' if is_one else 'make'} {what} ({where})"


def _auto(settings: Settings, server: Server, files: Files) -> list[str]:
    who = "auto: every other tool" if server.adapters else "auto: every tool"
    lines = []
    if settings.uploads.enabled:
        lines.append(f"{who} takes handles in any argument (from {put_name(server.id)})")
    else:
        lines.append(f"{who}: handles are not taken, uploads.enabled is switched off")
    if not settings.artifacts.enabled:
        return [*lines, f"{who}: files are not taken in, artifacts.enabled is switched off"]
    is_listed = settings.artifacts.expose_as_resources and files.expose_as_resource
    what = "artifact:// resources" if is_listed else "artifacts, not listed as resources"
    also = []
    if files.rewrite_text:
        also.append("their paths in results become URIs")
    if files.inline_text_bytes:
        also.append(f"text up to {format_size(files.inline_text_bytes).replace('.0 ', ' ')} is put into results")
    more = f"; {', '.join(also)}" if also else ""
    return [
        *lines,
        f"{who} makes {what} of files it names or changes in the session's folders{more}",
        *output_folder_hints(server),
    ]
