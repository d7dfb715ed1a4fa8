"""Schemas, their ids and subjects, and the metadata and rules beside them."""
