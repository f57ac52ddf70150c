"""Unix domain sockets: servers and clients that speak as on stdio, one JSON message a line, and a listener for HTTP.

The app uses `UnixServer`, `UnixAddress`, `LineListener`, `http_listener` and `remove_socket`.
"""
