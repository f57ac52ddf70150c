"""The cryptography that the checks of access need."""
