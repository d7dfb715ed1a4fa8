"""Records in files, on pipes and on their way to and from topics."""
