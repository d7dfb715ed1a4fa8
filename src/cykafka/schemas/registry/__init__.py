"""Clients of Schema Registry."""
