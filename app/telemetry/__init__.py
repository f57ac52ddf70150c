"""Counters and measurements of the work of a gateway."""
