"""A job's output for users: its summary, its log, its metrics and its health."""
