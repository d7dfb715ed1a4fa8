"""Writing: options, tasks on the executors, and transactions."""
