"""Shows people what crosses a running proxy: every message on both legs, and the request it belongs to."""
