"""Declarations of librdkafka, csrc and CPython. Only these files use `cdef extern`."""
