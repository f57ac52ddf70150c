"""The upload tool `<server id>_put_file`: its entry, its arguments, and its results."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...base.plan import ServerPlan
from ...bridge.content import tool_error
from ...jsonrpc import envelope
from ...jsonrpc.append import readable_elements, readable_members, readable_text
from ...jsonrpc.splice import set_member, take
from ...state.context import Context
from ...state.exchange import Exchange, ExchangeKey
from ...state.link import Link
from ..store.puts import Outcome, Part, Problem, Progress, Puts
from .inline_content import decoded_base64
from .offers import put_name, reply_of, upload_tools
from .upload_tools import UploadTools

_TEXTS: Final = ("filename", "text", "base64", "append_to", "sha256")


class PutCalls:
    """The calls of the tool."""

    def __init__(self, context: Context, puts: Puts) -> None:
        self._context = context
        self._puts = puts
        self._under_way: set[ExchangeKey] = set()

    def add_tool(self, result: bytes, server: ServerPlan, named: UploadTools, *, is_first: bool) -> bytes:
        """Returns a page of `tools/list`, which has the other upload tools already, with this one."""
        part_max_bytes, requires_sha256 = self._context.limits.upload_part_max_bytes, self._context.plan.require_sha256
        name = put_name(server.id)
        entry = put_entry(name, server.id, named.link, part_max_bytes=part_max_bytes, requires_sha256=requires_sha256)
        # Behind the tool that gives links: programs take the first tool for that.
        return add_put_tool(result, name, entry, index=(1 if named.link else 0) if is_first else None)

    def receive_call(self, link: Link, exchange: Exchange) -> None:
        """Stores the part of a file in the arguments, and answers the call."""
        session, limits = link.session_of(exchange), self._context.limits
        try:
            part = read_part(
                envelope.member_of(exchange.params, "arguments"),
                upload_tools(self._context, session, session.server),
                part_max_bytes=limits.upload_part_max_bytes,
                requires_sha256=self._context.plan.require_sha256,
            )
        except ArgumentFault as fault:
            self._finish(link, exchange, tool_error(str(fault)))
            return

        def stored(outcome: Outcome) -> None:
            if exchange.key in self._under_way:
                self._finish(link, exchange, put_result(outcome, link.plan.upload_scheme))
            elif isinstance(outcome, Progress) and not part.append_to:
                self._puts.drop(outcome.token)  # the call was cancelled, so its client cannot go on with it

        self._under_way.add(exchange.key)
        self._puts.put(session, part, stored)

    def forget(self, exchange: Exchange) -> None:
        """Forgets a call that is over, however it ended. A part that is being stored stays."""
        self._under_way.discard(exchange.key)

    def _finish(self, link: Link, exchange: Exchange, result: bytes) -> None:
        link.router.finish(link, exchange, envelope.encode_result(exchange.id_raw, result))


class ArgumentFault(Exception):
    """Raised for arguments that hold no part of a file. The message is for the caller."""


def put_entry(name: str, server_id: str, link: str, *, part_max_bytes: int, requires_sha256: bool) -> bytes:
    """Returns the entry of the tool in `tools/list`.

    Args:
        link: the name of the tool that gives upload links; "": there is none.
    """
    larger = f" For a large file on your own disk, {link} is better: it takes the file over HTTP." if link else ""
    return msgspec.json.encode(
        {
            "name": name,
            "title": "Upload a file's content",
            "description": (
                f"Sends a file to {server_id} as text or base64, and gives an upload_handle to pass where a tool of "
                "this server asks for a path. Use it for text, for small files, and wherever you cannot make HTTP "
                f"requests.{larger} A call takes at most {part_max_bytes} bytes. To send more, pass more: true with "
                "every part except the last, and append_to with every part except the first."
            ),
            "inputSchema": {
                "type": "object",
                "properties": {
                    "filename": {"type": "string", "description": "Name of the file, with its suffix."},
                    "text": {"type": "string", "description": "The content as text, stored as UTF-8."},
                    "base64": {"type": "string", "description": "The content in base64, in place of text."},
                    "more": {"type": "boolean", "description": "True: more parts of this file follow."},
                    "append_to": {
                        "type": "string",
                        "description": "The upload_id from the answer to the part before; leave it out for a new file.",
                    },
                    "sha256": {
                        "type": "string",
                        "description": "SHA-256 of the whole file as 64 hexadecimal digits, checked at the last part.",
                    },
                },
                "required": ["filename", "sha256"] if requires_sha256 else ["filename"],
                "additionalProperties": False,
            },
            "outputSchema": {"type": "object", "additionalProperties": True},
            "annotations": {
                "readOnlyHint": False,
                "destructiveHint": False,
                "idempotentHint": False,
                "openWorldHint": False,
            },
        }
    )


def add_put_tool(result: bytes, name: str, entry: bytes, *, index: int | None) -> bytes:
    """Returns a page of `tools/list` with the tool at `index`; with None, without it. A tool of the server that has its
    name is left out."""
    array = take(result, readable_members(result).get("tools"))
    if array is None or not array.startswith(b"["):
        return result
    tools = readable_elements(array)
    kept = [tool for tool in tools if readable_text(take(tool, readable_members(tool).get("name"))) != name]
    if index is not None:
        kept.insert(index, entry)
    return result if kept == tools else set_member(result, "tools", b"[" + b",".join(kept) + b"]")


def read_part(arguments: bytes | None, tools: UploadTools, *, part_max_bytes: int, requires_sha256: bool) -> Part:
    """Returns the part of a file in the arguments of a call.

    Raises:
        ArgumentFault: there is none.
    """
    given = _decoded(arguments)
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise ArgumentFault(f"Argument {name}: got {_shown(given[name])}, expected a string.")
    if not isinstance(given.get("more", False), bool):
        raise ArgumentFault(f"Argument more: got {_shown(given['more'])}, expected true or false.")
    is_last, append_to = not given.get("more", False), given.get("append_to", "")
    if not append_to and not given.get("filename"):
        raise ArgumentFault("Argument filename: got none, expected the name of the file.")
    sha256 = given.get("sha256", "")
    if sha256 and (len(sha256) != 64 or set(sha256) - set("0123456789abcdefABCDEF")):
        raise ArgumentFault(f"Argument sha256: got {_shown(sha256)}, expected 64 hexadecimal digits.")
    if is_last and requires_sha256 and not sha256:
        raise ArgumentFault("Argument sha256: got none, and this proxy requires the SHA-256 of every file.")
    data = _content(given, may_be_absent=bool(append_to))
    if len(data) > part_max_bytes:
        link = f", or call {tools.link} and send the file over HTTP" if tools.link else ""
        raise ArgumentFault(
            f"The content has {len(data)} bytes, and one call takes at most {part_max_bytes}: send it in several "
            f"parts, all but the last with more: true{link}."
        )
    return Part(data, given.get("filename", ""), None, append_to, is_last, sha256)


def _decoded(arguments: bytes | None) -> dict[str, Any]:
    try:
        given = msgspec.json.decode(arguments or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ArgumentFault("The arguments cannot be read, expected an object with filename, and text or base64.")
    return {name: value for name, value in given.items() if value is not None}


def _content(given: dict[str, Any], *, may_be_absent: bool) -> bytes:
    found = [given[name] for name in ("text", "base64") if name in given]
    if len(found) != 1:
        if not found and may_be_absent:
            return b""
        seen = "both text and base64" if found else "neither text nor base64"
        raise ArgumentFault(f"Got {seen}, expected one of them with the file's content.")
    if "text" in given:
        return str(given["text"]).encode()
    content = decoded_base64(given["base64"])
    if content is None:
        raise ArgumentFault(
            f"Argument base64: got {_shown(given['base64'])}, which is no base64. Encode the bytes in standard base64 "
            "with padding, or pass the content as text."
        )
    return content


def put_result(outcome: Outcome, scheme: str) -> bytes:
    """Returns the result of a call: for a complete file the JSON of an upload over HTTP, structured and as text.

    Args:
        scheme: prefix of the upload handles of the server.
    """
    if isinstance(outcome, Problem):
        return tool_error(outcome.text)
    if isinstance(outcome, Progress):
        structured = msgspec.json.encode(
            {
                "upload_id": outcome.token,
                "size_bytes": outcome.size_bytes,
                "is_complete": False,
                "note": f"Pass append_to {outcome.token!r} with the next part, and leave out more with the last one.",
            }
        )
    else:
        structured = reply_of([outcome], scheme)
    text = msgspec.json.encode(structured.decode())
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false}' % (text, structured)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return repr(text if len(text) <= 40 else text[:40] + "…")
