"""The proxy: configuration, command line and what is composed from the other packages."""
