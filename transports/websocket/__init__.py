"""WebSockets of clients and servers. The app uses `SocketServer`; `http_server` uses `serve_socket`."""
