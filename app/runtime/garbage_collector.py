"""How often the interpreter looks for cycles of objects that nobody uses.

A proxy makes hardly any, and what it makes many of lives as long as sessions do: each search goes through all of these,
so that calls cost more the more sessions there are. With 4,000 idle ones, searches as often as Python does by itself
take a quarter of a call's CPU time.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 20, 50)
"""Objects more than were freed before the young are searched, and such searches before older ones are: instead of 700,
10 and 10. So many objects are some MB at most."""


def collect_rarely() -> None:
    """Leave out of all searches what is there now, modules and the like, and search more rarely from here on."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
