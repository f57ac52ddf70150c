"""Runs one storm in a process of its own: `storm.py PORT KIND SEED SECONDS`. Prints its result as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Final

from attacker import Attack, Storm
from hostile_connections import CONNECTIONS
from hostile_messages import MESSAGES
from hostile_servers import SERVERS

KINDS: Final[dict[str, Attack]] = {kind.name: kind for kind in (*CONNECTIONS, *MESSAGES, *SERVERS)}
"""Every kind of hostile peer, by its name."""


def address_of(kind: str) -> str:
    """Returns the address from which a kind attacks."""
    return f"127.0.0.{2 + list(KINDS).index(kind)}"


async def run(port: int, kind: str, seed: str, seconds: float) -> Storm:
    attack = KINDS[kind]
    storm = Storm(port, random.Random(f"{seed} {kind}"), seconds, address_of(kind), attack.reaches)
    await attack.run(storm)
    return storm


def main() -> None:
    port, kind, seed, seconds = sys.argv[1:]
    storm = asyncio.run(run(int(port), kind, seed, float(seconds)))
    print(json.dumps({"counts": storm.counts, "reached": sorted(storm.reached), "wrongs": storm.wrongs}), flush=True)


if __name__ == "__main__":
    main()
