"""The stores of a gateway, in its storage folder or shared with other replicas: opened, kept tidy and examined."""
