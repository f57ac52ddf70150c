"""Parts that all transports share: the contract with the engine's owner (`Port`, `Outlet`, `FileService`), servers'
addresses (`Endpoint`), connecting (`Dialer`), the choice of driver (`Drive`), file descriptors, gates and counters.

The app uses `port`, `endpoint`, `dialer`, `driver`, `clock` and `traffic`.
"""
