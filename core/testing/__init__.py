"""The contract of a driver as tables, and `WatchedEngine`, an `Engine` that reports each breach of it.

Nothing else in the core uses this folder.
"""

from .contract import INPUTS, ORDERS, Kind
from .watched_engine import Contract, WatchedEngine

__all__ = ["INPUTS", "ORDERS", "Contract", "Kind", "WatchedEngine"]
