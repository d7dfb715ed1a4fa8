"""Reading and writing Arrow data by the C data interface."""
