"""Kafka clients for Spark: their properties, and clients that stay open in workers."""
