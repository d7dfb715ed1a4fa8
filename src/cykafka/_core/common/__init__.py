"""Errors, partitions, messages, metadata and configuration, for every package of the core."""
