"""Batches of values to Arrow and back."""
