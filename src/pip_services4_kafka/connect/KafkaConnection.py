"""placeholder: the interface comes first."""
