"""Converts arguments (durations, integers, texts). Errors name the argument."""
from cpython.long cimport PyLong_Check
from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_FromObject
from libc.math cimport ceil

from cykafka._core.clib.csrc cimport *


cdef int64_t timeout_ms(object timeout, str argument) except? -2:
    """Convert seconds to ms, rounded up. None and negative values mean forever and become -1.
    """
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
    """Return the clock's time this many ms from now; -1, for never, if ms is negative."""
    return -1 if ms < 0 else ck_runtime_now_ms() + ms


cdef int64_t slice_end(int64_t deadline) noexcept:
    """Return when the wait's next part ends: at the deadline (-1: none) or a slice from now."""
    cdef int64_t end = ck_runtime_now_ms() + SLICE
    return end if deadline < 0 else min(deadline, end)


cdef int slice_left(int64_t deadline) noexcept:
    """Return the ms until the deadline (-1: none): at least 0, at most a slice."""
    if deadline < 0:
        return SLICE
    return <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))


cdef const char *utf8(object text, Py_ssize_t *size, str argument) except NULL:
    """Return a str's UTF-8 form, which lives as long as the str. The error names the argument."""
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        error.reason += f" in {argument}"
        raise


cdef bytes hidden_utf8(str text, str argument):
    """Encode a configuration value or a credential as UTF-8. It may be a secret, so errors name
    the argument and never show the text."""
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
    """Raise if a value is too long for librdkafka."""
    if size > MAX_VALUE:
        raise ValueError(f"{argument}: it has {size} bytes, the limit is {MAX_VALUE}")
    return 0


cdef int check_count(Py_ssize_t count, str argument) except -1:
    """Raise if a list has too many topics or partitions for librdkafka."""
    if count > MAX_PARTITIONS:
        raise ValueError(f"{argument}: it has {count} items, the limit is {MAX_PARTITIONS}")
    return 0


cdef int64_t int_argument(object value, str argument, int64_t low, int64_t high) except? -2:
    """Return an integer within bounds. The error names the argument."""
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
    """Like plain_str(), but raise unless it is a str. The error names the argument."""
    if not isinstance(text, str):
        raise TypeError(f"{argument}: expected a str, got {type(text).__name__}")
    return plain_str(text)


cdef str plain_str(object text):
    """Convert a str subclass, such as an enumeration that overrides methods, to a plain str."""
    return PyUnicode_FromObject(text)
