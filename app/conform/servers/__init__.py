"""Scripted servers for a client under test, and the process of that client.

Each transport has a module. `ClientRunner` and its subclasses start the client and play a behaviour;
`http.URL_TRANSPORTS` lists the transports with URLs.
"""
