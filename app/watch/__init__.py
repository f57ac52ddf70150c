"""What crosses a running proxy, as people watch it: every message on both legs, and the requests they belong to."""
