"""A client's life, its callbacks, its tokens and its questions to the cluster."""
