"""The measured loops of the Python clients, written as their users write them.

Each file has one way to use a client. A loop is a function of :class:`_section.Arguments`. It
warms up, does its work within a :class:`_section.Section` and returns the section's report.
"""
