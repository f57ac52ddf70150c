"""TLS of listeners: the server's side of a connection, apart from its sockets and over each driver."""
