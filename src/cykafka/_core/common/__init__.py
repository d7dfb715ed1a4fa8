"""Errors, partitions, messages, metadata, configuration: what every package here uses."""
