"""The connection to the brokers, and requests for administration."""
