"""Conversion of arguments (durations, integers, texts), with errors that name the argument."""
from cpython.long cimport PyLong_Check
from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_FromObject
from libc.math cimport ceil

from cykafka._core.clib.csrc cimport ck_runtime_now_ms


cdef int64_t timeout_ms(object timeout, str argument) except? -2:
    """Seconds -> ms, rounded up; None and negative values mean forever, -1."""
    cdef double seconds
    if timeout is None:
        return -1
    try:
        seconds = timeout
    except TypeError:
        raise TypeError(f"{argument}: expected a number of seconds or None, "
                        f"got {type(timeout).__name__}") from None
    except OverflowError:  # an int that is too large for a float
        return -1
    if seconds != seconds:
        raise ValueError(f"{argument}: nan is not a number of seconds")
    if seconds < 0 or seconds > 1e9:
        return -1
    return <int64_t>ceil(seconds * 1e3)


cdef int64_t deadline_after(int64_t ms) noexcept:
    """The time of the clock in so many ms; -1 for never."""
    return -1 if ms < 0 else ck_runtime_now_ms() + ms


cdef int64_t slice_end(int64_t deadline) noexcept:
    """The deadline of the next part of a wait: at most a slice from now (-1: no deadline)."""
    cdef int64_t end = ck_runtime_now_ms() + SLICE
    return end if deadline < 0 else min(deadline, end)


cdef int slice_left(int64_t deadline) noexcept:
    """The time until the deadline, ms (-1: no deadline): at most a slice, at least 0."""
    if deadline < 0:
        return SLICE
    return <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))


cdef const char *utf8(object text, Py_ssize_t *size, str argument) except NULL:
    """The UTF-8 form of a str, which lives as long as the str; the error names the argument."""
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        error.reason += f" in {argument}"
        raise


cdef bytes hidden_utf8(str text, str argument):
    """The UTF-8 form of a value of the configuration or of a credential, either perhaps a secret:
    an error names the argument, not the text."""
    cdef Py_ssize_t start
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        start = error.start
    else:
        check_value_size(len(encoded), argument)
        return encoded
    raise ValueError(f"{argument}: the character at index {start} is a lone surrogate, which has "
                     "no UTF-8 form (os.environ contains them if a variable is not UTF-8)")


cdef int check_value_size(Py_ssize_t size, str argument) except -1:
    """Refuse a value that is too long for librdkafka."""
    if size > MAX_VALUE:
        raise ValueError(f"{argument}: it has {size} bytes, the limit is {MAX_VALUE}")
    return 0


cdef int check_count(Py_ssize_t count, str argument) except -1:
    """Refuse a list of too many topics or partitions for librdkafka."""
    if count > MAX_PARTITIONS:
        raise ValueError(f"{argument}: it has {count} items, the limit is {MAX_PARTITIONS}")
    return 0


cdef int64_t int_argument(object value, str argument, int64_t low, int64_t high) except? -2:
    """An integer within bounds; the error names the argument."""
    cdef int64_t number
    if not PyLong_Check(value):
        try:
            value = PyNumber_Index(value)
        except TypeError:
            raise TypeError(f"{argument}: expected an int, got {type(value).__name__}") from None
    try:
        number = value
    except OverflowError:
        raise ValueError(f"{argument}: {value} is out of range") from None
    if not low <= number <= high:
        raise ValueError(f"{argument}: expected {low} to {high}, got {number}")
    return number


cdef str str_argument(object text, str argument):
    """A str, as plain_str(); the error names the argument."""
    if not isinstance(text, str):
        raise TypeError(f"{argument}: expected a str, got {type(text).__name__}")
    return plain_str(text)


cdef str plain_str(object text):
    """The text as a plain str: a subclass, such as an enumeration, may override any method."""
    return PyUnicode_FromObject(text)
