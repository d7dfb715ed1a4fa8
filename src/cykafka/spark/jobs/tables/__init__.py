"""Delta and Iceberg tables, and the job ``compact``."""
