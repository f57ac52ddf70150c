"""The command `isthmus convert`: writes the configuration of an MCP client in our form."""

from __future__ import annotations

import argparse
import json
import os

import yaml

from ..base import logs, output
from ..base.errors import ConfigError
from . import config_files

_JSON, _YAML = (".json",), (".yaml", ".yml")


def convert(options: argparse.Namespace) -> None:
    """Converts the file that `options` name, and writes it to stdout or to `--output`.

    Raises:
        ConfigError: it cannot be converted, or the file is there, or it cannot be written.
    """
    source = config_files.open_given(options)
    target = options.output
    ending = os.path.splitext(target)[1].lower() if target is not None else ".yaml"
    if ending not in (*_JSON, *_YAML):
        raise ConfigError(f"got --output {target}, expected a name that ends in {', '.join((*_YAML, *_JSON))}")
    document = source.converted()
    for note in source.notes:
        logs.say(note)
    if ending in _JSON:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    else:
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    if target is None:
        output.say(text.rstrip("\n"))
        return
    # It may hold what an envFile held, so only its owner may read it.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if options.force else os.O_EXCL)
    try:
        with os.fdopen(os.open(target, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{target} is there already, expected another --output, or --force") from None
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from None
    output.say(f"{target}: written")
