"""Reads records from files, pipes and topics, and writes them there."""
