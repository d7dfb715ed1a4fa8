"""Producing records, one at a time and in batches; their outcomes; transactions."""
