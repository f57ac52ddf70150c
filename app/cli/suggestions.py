"""A parser of arguments that names what an unknown command, option or choice was probably meant to be."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from ...core.base.nearest import hint

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


class SuggestingParser(argparse.ArgumentParser):
    """An `ArgumentParser` whose parsers of commands are of this kind, too."""

    def option_hint(self, option: str) -> str:
        """Returns the end of a message about an unknown option; "" if none is near."""
        return hint(option, (name for name in self._option_string_actions if name.startswith("--")))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            known = list(map(str, action.choices or ()))
            if not isinstance(action, argparse._SubParsersAction):
                raise argparse.ArgumentError(action, f"{error.message}{hint(str(value), known)}") from None
            # What is no name may hold a secret, such as a URL: it is not repeated.
            what = f"unknown command {value}" if _NAME.fullmatch(str(value)) else "got no command"
            nearest = hint(str(value), known)
            raise argparse.ArgumentError(None, f"{what}{nearest or ', expected one of ' + ', '.join(known)}") from None
