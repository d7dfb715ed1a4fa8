"""The ``cykafka`` command: records on the command line, administration and a demonstration."""
