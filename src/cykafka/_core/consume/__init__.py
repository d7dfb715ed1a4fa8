"""Groups, messages, offsets and lag."""
