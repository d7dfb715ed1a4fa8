"""Reading: options and columns, plans on the driver, tasks on the executors."""
