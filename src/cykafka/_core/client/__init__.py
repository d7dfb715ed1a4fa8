"""A client's life, its callbacks, its tokens and its metadata requests."""
