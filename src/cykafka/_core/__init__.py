"""The compiled core of cykafka. DESIGN.md has the map; the public names are in cykafka."""
