"""The proxy as a program: configuration, command line, gateway and conformance tests."""
