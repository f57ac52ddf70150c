"""Runs one storm in a process of its own: `storm.py PORT KIND SEED SECONDS`. Prints its counts as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Final

from attacker import Attack, Storm
from hostile_clients import CLIENTS
from hostile_servers import SERVERS

KINDS: Final[dict[str, type[Attack]]] = {kind.name: kind for kind in (*CLIENTS, *SERVERS)}
"""Every kind of hostile peer, by its name."""


def main() -> None:
    port, kind, seed, seconds = sys.argv[1:]
    storm = Storm(int(port), random.Random(f"{seed} {kind}"), float(seconds))
    asyncio.run(KINDS[kind]().run(storm))
    print(json.dumps(storm.counts), flush=True)


if __name__ == "__main__":
    main()
