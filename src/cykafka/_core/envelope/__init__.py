"""Envelopes of pip-services as records, and back."""
