"""cykafka under other libraries' names, for code that you cannot change."""
