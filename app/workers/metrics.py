"""The metrics of all workers on one page, each with the label of its worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SAMPLE: Final = re.compile(rb"([A-Za-z_:][A-Za-z0-9_:]*)(\{)?")


def merged_metrics(parts: Mapping[str, bytes | None]) -> bytes:
    """Returns the metrics of several workers as one text, with the label `worker` for each sample.

    Args:
        parts: the metrics of each worker, by its tag; None: it does not answer.
    """
    families: dict[bytes, list[bytes]] = {}  # the lines of each, by the line that tells its type
    heads: dict[bytes, bytes] = {}
    for tag in sorted(parts):
        help, family = b"", b""
        for line in (parts[tag] or b"").splitlines():
            if line.startswith(b"# HELP "):
                help = line
            elif line.startswith(b"# TYPE "):
                family = line
                heads.setdefault(family, help)
                families.setdefault(family, [])
            elif line and (match := _SAMPLE.match(line)) is not None:
                label = b'worker="%b"' % tag.encode()
                rest = line[match.end() :]
                between = b"{%b," % label if match[2] else b"{%b}" % label
                families.setdefault(family, []).append(match[1] + between + rest)
    lines = [line for family, samples in families.items() for line in (heads.get(family, b""), family, *samples)]
    lines += [b"# HELP isthmus_worker_answers 1: the metrics of this worker are on the page; 0: they are missing."]
    lines += [b"# TYPE isthmus_worker_answers gauge"]
    lines += [
        b'isthmus_worker_answers{worker="%b"} %d' % (tag.encode(), parts[tag] is not None) for tag in sorted(parts)
    ]
    return b"\n".join([*lines, b""])
