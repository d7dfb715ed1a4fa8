"""The job ``archive``."""
