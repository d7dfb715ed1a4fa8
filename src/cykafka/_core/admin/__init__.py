"""Administrative requests and their answers."""
