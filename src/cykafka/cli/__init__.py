"""The command ``cykafka``: a demonstration that checks itself, and the versions in use."""
