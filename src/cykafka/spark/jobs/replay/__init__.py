"""The job ``replay``."""
