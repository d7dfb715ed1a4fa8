"""Records, one by one and in batches, their outcomes, and transactions."""
