"""Consumed messages as one object."""
