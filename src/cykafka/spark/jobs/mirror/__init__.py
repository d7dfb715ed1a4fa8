"""The jobs ``mirror`` and ``redrive``."""
