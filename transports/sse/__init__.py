"""Upstream servers of the HTTP+SSE transport of 2024-11-05, over `http_client`. The app uses `SseUpstream`."""
