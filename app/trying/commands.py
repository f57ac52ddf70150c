"""`isthmus tools`, `call`, `read` and `prompt`: what each does with a server, and what it prints."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import anyio
import msgspec

from ...core.base.errors import RemoteProtocolError
from ...core.base.nearest import hint
from ...transports.stdio.exit_reason import LAST_WORDS
from ..base import output
from ..base.errors import ConfigError, Failed
from ..base.output import plain
from ..runtime.hub import Hub
from ..runtime.own_sessions import Refusal
from .call_words import Problems, Word, build, read_words
from .descriptions import Target, argument_lines, example, first_sentence, table, tool_lines, tool_table
from .files import put_tool, read_file, save, takers, upload
from .results import File, Shown, is_readable, shown_prompt, shown_resource, shown_result
from .schemas import Json, arguments_of
from .session import TrySession, open_session
from .status_line import columns

NAMES_SHOWN: Final = 12
"""Known names in a message about an unknown one."""


class Asked(NamedTuple):
    """One server that a command asks, and how.

    Attributes:
        endpoint: its id.
        target: how commands name it.
        as_json: print results as JSON.
        folder: where files of results are saved; "" for nowhere.
        timeout_s: how long to wait, in all.
        last_lines: returns what a server wrote to stderr last, for messages; "" for nothing.
    """

    hub: Hub
    endpoint: str
    target: Target
    as_json: bool = False
    folder: str = ""
    timeout_s: float = math.inf
    last_lines: Callable[[str], str] = lambda endpoint: ""


async def within(asked: Asked, work: Callable[[TrySession, Json], Awaitable[int]]) -> int:
    """Runs `work` in a session, with what the server said to `initialize`. Returns the exit code.

    Raises:
        Failed: the server refuses, or does not answer in time.
        ConfigError: as `work` does.
    """
    failure: Failed | ConfigError | output.OutputClosed
    async with open_session(asked.hub, asked.endpoint, asked.endpoint) as session:
        is_up = False
        try:
            with anyio.fail_after(asked.timeout_s):
                greeting = await session.greeting()
                is_up = True
                return await work(session, greeting)
        except (Refusal, RemoteProtocolError) as error:
            text = _with_stderr(asked, str(error), is_up=is_up)
            failure = Failed(text if text.startswith(f"{asked.endpoint} ") else f"{asked.endpoint}: {text}")
        except TimeoutError:
            waited = f"no answer within {asked.timeout_s:g} s, the request is cancelled"
            failure = Failed(f"{asked.endpoint}: {_with_stderr(asked, waited, is_up=is_up)}")
        except (Failed, ConfigError, output.OutputClosed) as error:
            failure = error
        finally:
            session.status.clear()
    raise failure


def _with_stderr(asked: Asked, problem: str, *, is_up: bool) -> str:
    """Adds what a server wrote last that did not start: it tells why."""
    last = "" if is_up or LAST_WORDS in problem else asked.last_lines(asked.endpoint)
    return f"{problem}; {last}" if last else problem


# --- tools ----------------------------------------------------------------------------------------------------------


async def show_tools(asked: Asked, name: str) -> int:
    """Prints the tools of a server, or all about one."""

    async def work(session: TrySession, greeting: Json) -> int:
        tools = await session.listed("tools/list")
        if not name:
            if asked.as_json:
                output.say_json({"tools": tools})
            else:
                end = [_tools_end(asked.target)] if tools else []
                output.say("\n".join([*_heading(asked, greeting, tools), *end]))
            return 0
        tool = _named(tools, name, "tool", asked.endpoint)
        if asked.as_json:
            output.say_json(tool)
        else:
            takes = takers(tool, put_tool(tools, name))
            output.say("\n".join(tool_lines(tool, asked.target, columns(), takes=takes)))
        return 0

    return await within(asked, work)


async def show_all_tools(all_asked: Sequence[Asked]) -> int:
    """Prints the tools of several servers, which are asked at once. Returns 1 if one of them cannot be asked."""
    found: dict[str, list[Json]] = {}
    headings: dict[str, list[str]] = {}
    problems: dict[str, str] = {}

    async def ask(asked: Asked) -> None:
        async def work(session: TrySession, greeting: Json) -> int:
            found[asked.endpoint] = await session.listed("tools/list")
            headings[asked.endpoint] = _heading(asked, greeting, found[asked.endpoint])
            return 0

        try:
            await within(asked, work)
        except Failed as failed:
            problems[asked.endpoint] = str(failed)

    async with anyio.create_task_group() as tasks:
        for asked in all_asked:
            tasks.start_soon(ask, asked)
    order = [asked.endpoint for asked in all_asked]
    if all_asked[0].as_json:
        shown = {id: {"tools": found[id]} if id in found else {"error": problems[id]} for id in order}
        output.say_json(shown)
    else:
        lines = [line for id in order for line in headings.get(id, ())]
        if lines:
            output.say("\n".join([*lines, _tools_end(all_asked[0].target, "ID")]))
        for id in order:
            if id in problems:
                output.complain(f"isthmus: {problems[id]}")
    return 1 if problems else 0


def _heading(asked: Asked, greeting: Json, tools: Sequence[Json]) -> list[str]:
    info = greeting.get("serverInfo")
    named = [str(info[key]) for key in ("name", "version") if info.get(key)] if isinstance(info, dict) else []
    first = f"{asked.endpoint}: {plain(' '.join(named))}{', ' if named else ''}{_counted(tools, 'tool')}"
    return [first, *tool_table(tools, columns()), ""]


def _counted(entries: Sequence[Json], what: str) -> str:
    return f"{len(entries)} {what}{'' if len(entries) == 1 else 's'}"


def _tools_end(target: Target, id: str = "") -> str:
    return f"arguments of a tool: {target.command('tools', [id, 'TOOL'] if id else ['TOOL'])}"


# --- call -----------------------------------------------------------------------------------------------------------


async def call_tool(asked: Asked, name: str, texts: Sequence[str], given: Json | None) -> int:
    """Calls a tool, and prints its result.

    Args:
        texts: arguments as words.
        given: arguments as an object, which is not checked.
    """

    async def work(session: TrySession, greeting: Json) -> int:
        tools = await session.listed("tools/list")
        tool = _named(tools, name, "tool", asked.endpoint)
        put = put_tool(tools, name)
        arguments = await _arguments(asked, session, tool, texts, given, put=put)
        await session.hear_logs(greeting)
        result = await session.request("tools/call", {"name": name, "arguments": arguments})
        if asked.as_json:
            output.say_json(result)
            return 1 if result.get("isError") is True else 0
        return await _print(asked, session, shown_result(result, name))

    return await within(asked, work)


async def _arguments(
    asked: Asked,
    session: TrySession,
    tool: Json,
    texts: Sequence[str],
    given: Json | None,
    *,
    put: str = "",
    verb: str = "call",
) -> Json:
    """Returns the arguments of a call, with handles or texts in place of files.

    Raises:
        ConfigError: the tool does not take them.
    """
    schema = tool.get("inputSchema")
    takes = takers(tool, put)
    try:
        words = read_words(texts, arguments_of(schema))
        built = build(words, schema, None, given)
        if not any(word.file for word in words):
            return built
        contents: dict[Word, str] = {}
        for word in words:
            if word.file and word not in contents:
                contents[word] = await _content(session, word, put, is_taken=word.name in takes)
        return build(words, schema, contents.__getitem__, given)
    except Problems as problems:
        lines = [f"{tool['name']}: {line}" for line in problems.lines]
        known = argument_lines(schema, columns()) or [f"  {tool['name']} takes no arguments"]
        tried = f"try: {example(tool, asked.target, verb, takes)}"
        raise ConfigError("\n".join([*map(plain, lines), *known, tried])) from None


async def _content(session: TrySession, word: Word, put: str, *, is_taken: bool) -> str:
    """Returns what stands for a file in an argument: a handle where files are taken, else its text."""
    data = read_file(word.file)
    text: str | None = None
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode()
    if put and not word.is_json and (is_taken or text is None):
        handle = await upload(session, put, word.file, data)
        session.status.say(f"{word.name}: {word.file} is uploaded, the tool gets its handle")
        return handle
    if text is None:
        raise ConfigError(
            f"{word.name}: {word.file} is no text, and no files are uploaded to this server: with --files, or with "
            "files: auto in the configuration, they are"
        )
    session.status.say(f"{word.name}: the text of {word.file} is sent")
    return text


# --- read and prompt ------------------------------------------------------------------------------------------------


async def read_resource(asked: Asked, uri: str) -> int:
    """Prints a resource; without a URI, lists resources and their templates."""

    async def work(session: TrySession, greeting: Json) -> int:
        if not uri:
            resources = await session.listed("resources/list")
            templates = await session.listed("resources/templates/list")
            if asked.as_json:
                output.say_json({"resources": resources, "resourceTemplates": templates})
                return 0
            rows = [(plain(str(one.get("uri"))), _about(one)) for one in resources]
            rows += [(plain(str(one.get("uriTemplate"))), _about(one)) for one in templates]
            counted = f"{_counted(resources, 'resource')}, {_counted(templates, 'template')}"
            output.say("\n".join([f"{asked.endpoint}: {counted}", *table(rows, columns())]))
            return 0
        try:
            result = await session.request("resources/read", {"uri": uri})
        except Refusal as refusal:
            known = [str(one.get("uri")) for one in await session.listed("resources/list")]
            raise Failed(f"{asked.endpoint}: {refusal}{'' if uri in known else hint(uri, known)}") from None
        if asked.as_json:
            output.say_json(result)
            return 0
        return await _print(asked, session, shown_resource(result, uri), may_write=True)

    return await within(asked, work)


async def get_prompt(asked: Asked, name: str, texts: Sequence[str]) -> int:
    """Prints the messages of a prompt; without a name, lists the prompts."""

    async def work(session: TrySession, greeting: Json) -> int:
        prompts = await session.listed("prompts/list")
        if not name:
            if asked.as_json:
                output.say_json({"prompts": prompts})
                return 0
            rows = [(_with_arguments(one), _about(one)) for one in prompts]
            output.say("\n".join([f"{asked.endpoint}: {_counted(prompts, 'prompt')}", *table(rows, columns())]))
            return 0
        prompt = _named(prompts, name, "prompt", asked.endpoint)
        as_tool = {"name": name, "inputSchema": _prompt_schema(prompt)}
        arguments = await _arguments(asked, session, as_tool, texts, None, verb="prompt")
        result = await session.request("prompts/get", {"name": name, "arguments": arguments})
        if asked.as_json:
            output.say_json(result)
            return 0
        return await _print(asked, session, shown_prompt(result, name))

    return await within(asked, work)


def _about(entry: Json) -> str:
    sentence = first_sentence(entry.get("description") or entry.get("title"))
    return sentence or plain(str(entry.get("name", "")))


def _prompt_schema(prompt: Json) -> Json:
    """Returns the arguments of a prompt, which are texts, as the schema of an object."""
    listed = prompt.get("arguments")
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = {str(one["name"]): one for one in entries if "name" in one}
    properties = {name: {"type": "string", "description": one.get("description")} for name, one in named.items()}
    required = [name for name, one in named.items() if one.get("required") is True]
    return {"type": "object", "properties": properties, "required": required}


def _with_arguments(prompt: Json) -> str:
    arguments = arguments_of(_prompt_schema(prompt)).known.values()
    words = [f"{one.name}=…" if one.is_required else f"[{one.name}=…]" for one in arguments]
    return plain(" ".join([str(prompt.get("name", "")), *words]))


# --- Output ---------------------------------------------------------------------------------------------------------


def _named(entries: Sequence[Json], name: str, what: str, endpoint: str) -> Json:
    """Returns the entry with this name.

    Raises:
        ConfigError: there is none.
    """
    known = [str(one["name"]) for one in entries if "name" in one]
    for entry in entries:
        if entry.get("name") == name:
            return entry
    near = hint(name, known)
    more = ", …" if len(known) > NAMES_SHOWN else ""
    listed = f", which has {', '.join(known[:NAMES_SHOWN])}{more}" if known else f", which has no {what}s"
    raise ConfigError(plain(f"no {what} {name} at {endpoint}{near or listed}"))


async def _print(asked: Asked, session: TrySession, shown: Shown, *, may_write: bool = False) -> int:
    """Prints texts, and saves or names files. Returns the exit code.

    Args:
        may_write: the bytes of the only file go to stdout, unless that is a terminal.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    for text in shown.texts:
        if shown.is_error:
            output.complain(text)
        else:
            output.say(text.removesuffix("\n"), is_raw=not is_terminal)
    only = shown.files[0].data if may_write and len(shown.files) == 1 and not shown.texts else None
    if only is not None and not asked.folder and not is_terminal:
        output.write(only)
        return 0
    for file in shown.files:
        if asked.folder and is_readable(file):
            await _save(asked, session, file)
        else:
            session.status.say(file.label)
    if any(map(is_readable, shown.files)) and not asked.folder:
        session.status.say(f"not saved: --save DIR writes {'it' if len(shown.files) == 1 else 'them'} into a folder")
    return 1 if shown.is_error else 0


async def _save(asked: Asked, session: TrySession, file: File) -> None:
    data = file.data
    if data is None:
        try:
            result = await session.request("resources/read", {"uri": file.uri})
        except Refusal as refusal:
            session.status.say(f"{file.label} cannot be read: {plain(str(refusal))}")
            return
        shown = shown_resource(result, file.name)
        data = "".join(shown.texts).encode() if shown.texts else b"".join(one.data or b"" for one in shown.files)
    path = await save(asked.folder, file.name, data)
    about = File(path, file.mime, None, "", len(data))
    session.status.say(f"saved {about.label}")


def read_given(text: str) -> Json:
    """Returns the object of `--arguments`: JSON, the name of a file with it, or `-` for stdin.

    Raises:
        ConfigError: it is none.
    """
    if not text.lstrip().startswith(("{", "[")):
        text = sys.stdin.read() if text == "-" else read_file(text).decode(errors="replace")
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"got --arguments that are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError('got --arguments that are no JSON object, expected one such as \'{"city": "Berlin"}\'')
    return found
