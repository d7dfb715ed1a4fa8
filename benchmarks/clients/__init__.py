"""The measured loops of the Python clients, written as their users write them.

One file for each way of using a client. A loop is a function of :class:`_section.Arguments` that
warms up, does the work within a :class:`_section.Section` and returns its report.
"""
