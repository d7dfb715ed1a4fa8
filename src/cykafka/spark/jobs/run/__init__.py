"""A job while it runs: its Spark session, its streams and their checkpoints."""
