"""The compiled core of cykafka. DESIGN.md describes it; the public names are in cykafka."""
