"""The command ``cykafka``: records on the command line, and a demonstration."""
