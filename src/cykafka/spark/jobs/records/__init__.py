"""Records: values and headers as columns, and the outcome of sending them."""
