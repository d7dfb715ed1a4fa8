"""cykafka under other libraries' names, for code that is not ours to change."""
