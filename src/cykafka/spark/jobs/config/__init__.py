"""The keys of jobs and their values, and all checks before Spark starts."""
