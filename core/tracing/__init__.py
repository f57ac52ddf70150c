"""Trace contexts: their text in headers and `_meta`, the parent of a request's span, and which requests have spans."""
