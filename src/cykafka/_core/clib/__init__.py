"""librdkafka, csrc and CPython declarations. Only these files use `cdef extern`."""
