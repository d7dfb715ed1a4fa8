"""What is declared in C: librdkafka, csrc. The only files that say `cdef extern`."""
