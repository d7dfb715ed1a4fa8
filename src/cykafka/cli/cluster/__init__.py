"""The connection to the brokers, and administrative requests."""
