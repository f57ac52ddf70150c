"""Rewrites the variables in texts of clients as those of our own form.

`${env:TOKEN}` becomes `${TOKEN}`, which the reader of our form replaces, and any `$` that means itself becomes `$$`.
So a converted file holds no secret that the file did not hold, and what is not set is found in one place only. Nothing
that looks like a variable stays: what is not known is an error.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

from ....core.base.nearest import nearest
from .clients import Client
from .surroundings import Input, Surroundings

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_WHOLE_NAME: Final = re.compile(_NAME)
_PARTS: Final = re.compile(
    rf"""\$\{{\{{\s*(?:secrets\.|inputs\.|env\.)?(?P<secret>{_NAME})\s*\}}\}}
      | \$\$\{{ (?P<literal>)
      | \$\{{(?P<inside>[^{{}}]*)\}}
      | (?P<open>\$\{{)
      | \{{\{{(?P<template>[^{{}}]*)\}}\}}
      | \{{env:(?P<braced>[^{{}}]*)\}}
      | \{{file:(?P<file>[^{{}}]*)\}}
      | \$(?P<bare>{_NAME})
      | (?P<dollar>\$)""",
    re.VERBOSE,
)
_INSIDE: Final = re.compile(r"(?:env[:.]|secrets\.)?(?P<name>[^:]+?)(?P<default>:-.*)?", re.DOTALL)
_PATH: Final = re.compile(r"[~.]?/|[^{}]*/")
_LONE: Final = re.compile(r"(?:[A-Za-z]+ )?\$[A-Z][A-Z0-9_]*")
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_KNOWN: Final = (
    "${NAME}, ${NAME:-default}, ${env:NAME}, ${input:ID}, ${workspaceFolder}, ${userHome} or ${file:PATH}, with $${ "
    "for a literal ${"
)


class UnknownVariable(Exception):
    """A variable that cannot be replaced.

    Attributes:
        seen: what was seen, without values.
        expected: what would be right.
    """

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.seen = seen


def escape(text: str) -> str:
    """Returns `text` so that our own form reads it as it is."""
    return text.replace("$", "$$")


class Variables:
    """Rewrites the variables of one file.

    Args:
        client: the dialect.
        workspace: what `${workspaceFolder}` stands for.
        inputs: the inputs of the file, by id.
    """

    def __init__(self, client: Client, workspace: str, inputs: Mapping[str, Input], surroundings: Surroundings) -> None:
        self._client = client
        self._inputs = inputs
        self._surroundings = surroundings
        self._answers: dict[str, str] = {}
        folder = posixpath.dirname(surroundings.path)
        self._fixed = {
            "workspaceFolder": workspace,
            "workspaceRoot": workspace,
            "workspaceFolderBasename": posixpath.basename(workspace),
            "cwd": workspace,
            "pathSeparator": "/",
            "/": "/",
            "CLAUDE_PROJECT_DIR": workspace,
            "CLAUDE_PLUGIN_ROOT": workspace if folder.endswith("/.claude-plugin") else folder,
            "extensionPath": folder,
        }

    def rewrite(self, text: str, own: Mapping[str, str] | None = None) -> str:
        """Returns `text` in our form.

        Args:
            own: for an argument of a program, the variables that the program is given, in our form. They go first:
                programs such as mcp-remote replace `${NAME}` in their arguments themselves.

        Raises:
            UnknownVariable: `text` holds a variable that is not known, or an input without a value.
        """
        return _PARTS.sub(lambda match: self._replacement(match, own), text)

    def _replacement(self, match: re.Match[str], own: Mapping[str, str] | None) -> str:
        kind, whole = match.lastgroup, match[0]
        if own is not None and kind in ("inside", "bare"):
            name = match[kind].partition(":-")[0]
            if name in own and (kind == "inside" or self._client.has_bare_variables):
                return own[name]
        if kind == "secret":
            return f"${{{match['secret']}}}"
        if kind == "literal":
            return "$${"
        if kind == "inside":
            return self._inside(whole, match["inside"])
        if kind == "open":
            raise UnknownVariable(f"a closing }}, and no variable in a variable; or {_KNOWN}", "got ${ without its }")
        if kind == "template" and (
            self._client.has_templates or (own is None and _PLACEHOLDER.fullmatch(match["template"].strip()))
        ):
            raise UnknownVariable(
                "a text, or a variable such as ${NAME}: only the client can fill it in, so write the value",
                f"got {whole}",
            )
        if kind == "braced" and (self._client.has_braces or _WHOLE_NAME.fullmatch(match["braced"])):
            return self._variable(match["braced"], "")
        if kind == "file" and (self._client.has_braces or _PATH.match(match["file"])):
            return self._content(match["file"])
        if kind == "bare" and self._client.has_bare_variables:
            return f"${{{match['bare']}}}"
        if kind == "bare" and _LONE.fullmatch(match.string):
            raise UnknownVariable(f"${{{match['bare']}}}, with braces, for the variable", f"got {whole}")
        return escape(whole)

    def _inside(self, whole: str, inside: str) -> str:
        name, _, rest = inside.partition(":")
        if inside in self._fixed and (inside not in self._surroundings.environ or not inside.startswith("CLAUDE_")):
            return escape(self._fixed[inside])
        if name == "workspaceFolder":  # that of one of several folders
            return escape(self._fixed["workspaceFolder"])
        if inside == "userHome":
            return "${HOME}"
        if name == "input":
            return self._input(rest)
        if name == "file":
            return self._content(rest)
        found = _INSIDE.fullmatch(inside)
        shown = whole.partition(":-")[0] + ("}" if ":-" in whole else "")  # a default may be a secret
        if found is None:
            raise UnknownVariable(_KNOWN, f"got {shown}")
        if found["default"] and "$" in found["default"]:
            raise UnknownVariable("a default without a $ in it", f"got {shown}")
        return self._variable(found["name"], found["default"] or "", shown)

    def _variable(self, name: str, default: str, shown: str = "") -> str:
        if _WHOLE_NAME.fullmatch(name):
            return f"${{{name}{default}}}"
        if name in self._surroundings.environ:  # such as ProgramFiles(x86), which our form cannot name
            return escape(self._surroundings.environ[name])
        raise UnknownVariable(_KNOWN, f"got {shown or f'{{env:{name}}}'}")

    def _content(self, path: str) -> str:
        path = path.strip()
        if path.startswith("~/"):
            path = posixpath.join(self._surroundings.environ.get("HOME", "/"), path[2:])
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self._surroundings.path), path))
        try:
            return escape(self._surroundings.read_text(path).strip())
        except OSError as error:
            raise UnknownVariable("a file that can be read", f"got {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UnknownVariable("a file of UTF-8 text", f"got {path}") from None

    def _input(self, id: str) -> str:
        if id not in self._answers:
            self._answers[id] = self._answer(id)
        return self._answers[id]

    def _answer(self, id: str) -> str:
        """Returns the value of an input in our form: given, that of a variable of its name, or entered."""
        asked = self._inputs.get(id)
        if asked is None:
            near = nearest(id, self._inputs)
            known = f"{near}, the nearest one" if near else "one of them, with an id"
            raise UnknownVariable(f"an input that inputs describes: {known}", f"got ${{input:{id}}}")
        given, environ = self._surroundings.inputs.get(id), self._surroundings.environ
        names = (id, variable_name(id), variable_name(id).lower())
        if given is None:
            for name in names:
                if name in environ and _WHOLE_NAME.fullmatch(name):
                    return f"${{{name}}}"
                if name in environ:
                    return escape(environ[name])
        if given is None and self._surroundings.leaves_inputs_open:
            return f"${{{variable_name(id)}}}"
        if given is None and self._surroundings.ask is not None:
            given = self._surroundings.ask(asked)
        about = f" ({asked.description})" if asked.description else ""
        if given is None:
            hint = f", such as its default {asked.default}" if asked.default and not asked.is_secret else ""
            raise UnknownVariable(
                f"a value{hint}, as --input {id}=VALUE or in the environment variable {variable_name(id)}",
                f"the input {id}{about} has no value",
            )
        if asked.options and given not in asked.options:
            raise UnknownVariable(
                f"one of {', '.join(asked.options)}", f"the input {id}{about} has a value that is not offered"
            )
        return escape(given)


def variable_name(id: str) -> str:
    """Returns the name of the variable that stands for an input, such as `API_KEY` for `api-key`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", id).strip("_").upper()
    return name if _WHOLE_NAME.fullmatch(name) else f"INPUT_{name}"
