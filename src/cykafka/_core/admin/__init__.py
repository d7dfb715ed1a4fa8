"""Administrative requests and their responses."""
