"""The protocol engine: pure, deterministic, bounded. See `engine` for how the parts meet."""
