"""Arrow data in and out, by the C data interface."""
