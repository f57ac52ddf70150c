"""Counters, spans and records of the work of a gateway, for other programs."""
