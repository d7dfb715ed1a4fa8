"""Columns: converts publish()'s arguments to C columns (csrc/ck_column).

A Columns object belongs to one call, and keeps everything that its columns point to. Steps that
may run foreign code (iteration, buffer export, __index__) run here, before the caller checks the
handle.

Pieces, a text split at delimiters, are a column without Python objects.
"""
from collections.abc import Iterable, Mapping, Set

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_STRIDES,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_Check
from cpython.ref cimport Py_INCREF
from cpython.sequence cimport PySequence_Check
from cpython.slice cimport PySlice_GetIndicesEx
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check
cimport cython
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memset

from cykafka._core.arrow.read cimport ArrowData, is_arrow
from cykafka._core.clib.csrc cimport *
from cykafka._core.common.arguments cimport int_argument

cdef const char *EMPTY = b""


cdef class Pairs:
    """A growing list of headers."""

    def __dealloc__(self):
        free(self._names)
        free(self._values)

    cdef int reserve(self) except -1:
        """Make room for one more header."""
        cdef size_t size
        cdef void *more
        if self._cnt < self._size:
            return 0
        size = 2 * self._size + 64
        more = realloc(self._names, size * sizeof(ck_bytes_t))
        if more is NULL:
            raise MemoryError
        self._names = <ck_bytes_t *>more
        more = realloc(self._values, size * sizeof(ck_bytes_t))
        if more is NULL:
            raise MemoryError
        self._values = <ck_bytes_t *>more
        self._size = size
        return 0


cdef class Columns:
    """The columns of one call, and the memory that they point to."""

    def __cinit__(self):
        self._cnt = -1
        self._objects = []

    def __dealloc__(self):
        cdef held_t *held
        cdef size_t i
        while self._held is not NULL:
            held = self._held
            self._held = held.before
            PyBuffer_Release(&held.buffer)
            free(held)
        for i in range(self._block_cnt):
            free(self._blocks[i])
        free(self._blocks)

    cdef void *block(self, size_t cnt, size_t size) except NULL:
        """Allocate cnt items of this size. The memory lives as long as the columns."""
        cdef void **blocks
        cdef void *block
        if self._block_cnt == self._block_size:
            blocks = <void **>realloc(self._blocks, (self._block_size + 8) * sizeof(void *))
            if blocks is NULL:
                raise MemoryError
            self._blocks = blocks
            self._block_size += 8
        block = malloc(max(cnt * size, 1))  # cnt objects exist: the product cannot overflow
        if block is NULL:
            raise MemoryError
        self._blocks[self._block_cnt] = block
        self._block_cnt += 1
        return block

    cdef Py_buffer *hold(self, object exporter, int flags) except NULL:
        """Get the exporter's buffer and hold it as long as the columns live."""
        cdef held_t *held = <held_t *>malloc(sizeof(held_t))
        if held is NULL:
            raise MemoryError
        try:
            PyObject_GetBuffer(exporter, &held.buffer, flags)
        except:
            free(held)
            raise
        held.before = self._held
        self._held = held
        return &held.buffer

    cdef int count(self, str name, Py_ssize_t cnt) except -1:
        """Check a column's number of records; the first column determines it."""
        if self._cnt < 0:
            self._cnt = cnt
            self._told_by = name
        elif self._cnt != cnt:
            raise ValueError(f"{name} has {cnt} item(s), but {self._told_by} has {self._cnt}: "
                             "expected one item per record")
        return 0

    cdef ArrowData _arrow(self, object data, str name):
        """Return Arrow data with one item per record; the columns keep it."""
        cdef ArrowData arrow = ArrowData(data, name)
        self._objects.append(arrow)
        self.count(name, arrow.length)
        return arrow

    # -- byte strings

    cdef tuple bytes_column(self, object data, str name, ck_column_t *column):
        """Fill a column of byte strings. Returns the tuple that keeps the strings if all are
        immutable, otherwise None."""
        cdef ArrowData arrow
        cdef Pieces pieces
        memset(column, 0, sizeof(ck_column_t))
        column.kind = CK_COLUMN_NONE
        if data is None:
            return None
        if not isinstance(data, (list, tuple)):
            if isinstance(data, Pieces):
                pieces = <Pieces>data
                self._objects.append(pieces)
                self.count(name, pieces._cnt)
                column.kind = CK_COLUMN_POINTERS
                column.u.items = pieces._items
                return (pieces._text,)
            if is_arrow(data):
                arrow = self._arrow(data, name)
                arrow.whole_column(None, name, column)
                return (arrow,)
            if PyObject_CheckBuffer(data) and not isinstance(data, (bytes, bytearray)):
                if self._buffer_column(data, name, column):
                    return None
        return self._gathered(items_of(data, name, "bytes, str, a buffer or None"), name, column)

    cdef tuple _gathered(self, tuple items, str name, ck_column_t *column):
        cdef ck_bytes_t *into
        cdef bint immutable = True
        cdef Py_ssize_t size, i = 0
        self.count(name, len(items))
        self._objects.append(items)
        into = <ck_bytes_t *>self.block(len(items), sizeof(ck_bytes_t))
        for item in items:
            if PyBytes_Check(item):
                into[i].ptr = PyBytes_AS_STRING(item)
                into[i].len = PyBytes_GET_SIZE(item)
            elif item is None:
                into[i].ptr = NULL
                into[i].len = 0
            elif PyUnicode_Check(item):
                into[i].ptr = _utf8(item, &size, name, i)
                into[i].len = size
            else:
                immutable = False
                self._other(item, name, i, &into[i])
            i += 1
        column.kind = CK_COLUMN_POINTERS
        column.u.items = into
        return items if immutable else None

    cdef int _other(self, object item, str name, Py_ssize_t i, ck_bytes_t *into) except -1:
        """Read an item that is neither bytes nor str."""
        cdef Py_buffer *buffer
        if not PyObject_CheckBuffer(item):
            raise TypeError(f"{name}[{i}]: expected bytes, str, a buffer or None, "
                            f"got {type(item).__name__}")
        try:
            buffer = self.hold(item, PyBUF_SIMPLE)
        except BufferError as error:
            raise TypeError(f"{name}[{i}]: expected a contiguous buffer: {error}") from None
        # An empty buffer may have a NULL address, which would mean a null.
        into.ptr = <const void *>buffer.buf if buffer.len else <const void *>EMPTY
        into.len = buffer.len
        return 0

    cdef bint _buffer_column(self, object data, str name, ck_column_t *column) except -1:
        """Read a buffer of fixed-width items. Returns False for Python objects or text."""
        cdef Py_buffer *buffer
        cdef str kind
        try:
            buffer = self.hold(data, PyBUF_FORMAT | PyBUF_STRIDES)
        except (BufferError, ValueError) as error:
            raise TypeError(f"{name}: expected a buffer of byte strings: {error}") from None
        kind = _kind_of(buffer)
        if kind in ("O", "w"):
            return False
        if kind == "s" and buffer.ndim == 1:
            column.kind = CK_COLUMN_PADDED
            column.u.fixed.width = buffer.itemsize
        elif buffer.ndim == 2 and buffer.itemsize == 1:
            if buffer.strides[1] != 1 and buffer.shape[1] > 1:
                raise TypeError(f"{name}: expected contiguous rows; call "
                                "numpy.ascontiguousarray()")
            column.kind = CK_COLUMN_FIXED
            column.u.fixed.width = buffer.shape[1]
        elif buffer.ndim == 1 and buffer.itemsize == 1:
            raise TypeError(f"{name}: expected one item per record, got the bytes of one: "
                            "put it into a list")
        else:
            raise TypeError(f"{name}: expected a buffer of byte strings (format '10s', or rows of "
                            f"bytes in two dimensions), got one of format {_format_of(buffer)!r} "
                            f"in {buffer.ndim} dimension(s)")
        column.u.fixed.base = <const char *>buffer.buf
        column.u.fixed.stride = buffer.strides[0]
        self.count(name, buffer.shape[0])
        return True

    # -- numbers

    cdef int numbers_column(self, object data, str name, ck_numbers_t *numbers, int64_t missing,
                            int64_t low, int64_t high) except -1:
        """Read one integer for all records, or one per record."""
        cdef ArrowData arrow
        memset(numbers, 0, sizeof(ck_numbers_t))
        numbers.missing = missing
        if data is None:
            return 0
        if PyLong_Check(data):
            numbers.missing = int_argument(data, name, low, high)
            return 0
        if not isinstance(data, (list, tuple)):
            if isinstance(data, (str, bytes, bytearray)):
                raise TypeError(f"{name}: expected an int, or a sequence or buffer of int, "
                                f"got {type(data).__name__}")
            if is_arrow(data):
                arrow = self._arrow(data, name)
                arrow.whole_numbers(None, name, name == "timestamps", numbers)
                check_range(numbers, arrow.length, name, low, high)
                return 0
            if (PyObject_CheckBuffer(data)
                    and self._buffer_of_numbers(data, name, numbers, low, high)):
                return 0
            if not PySequence_Check(data) or isinstance(data, (Mapping, Set)):
                numbers.missing = int_argument(data, name, low, high)
                return 0
        return self._list_of_numbers(tuple(data), name, numbers, low, high)

    cdef bint _buffer_of_numbers(self, object data, str name, ck_numbers_t *numbers, int64_t low,
                                 int64_t high) except -1:
        """Read a buffer of signed integers. Returns False if it must be read item by item."""
        cdef Py_buffer *buffer
        cdef Py_ssize_t cnt
        cdef str kind
        try:
            buffer = self.hold(data, PyBUF_FORMAT | PyBUF_STRIDES)
        except (BufferError, ValueError) as error:  # numpy does not export datetime64
            hint = "; convert datetime64 with .astype('datetime64[ms]').view('int64')"
            raise TypeError(f"{name}: expected a buffer of integers: {error}"
                            f"{hint if name == 'timestamps' else ''}") from None
        if buffer.ndim == 0:  # a numpy scalar
            numbers.missing = int_argument(data, name, low, high)
            return True
        kind = _kind_of(buffer)
        if buffer.ndim != 1 or not kind or kind not in "bhilqnBHILQNO":
            raise TypeError(f"{name}: expected a buffer of integers in one dimension and this "
                            f"machine's byte order, got one of format {_format_of(buffer)!r} in "
                            f"{buffer.ndim} dimension(s)")
        if kind in "BHILQNO":
            return False
        cnt = buffer.shape[0]
        self.count(name, cnt)
        numbers.width = buffer.itemsize
        numbers.base = <const char *>buffer.buf
        numbers.stride = buffer.strides[0]
        check_range(numbers, cnt, name, low, high)
        return True

    cdef int _list_of_numbers(self, tuple items, str name, ck_numbers_t *numbers, int64_t low,
                              int64_t high) except -1:
        cdef int64_t *into
        cdef Py_ssize_t i = 0
        self.count(name, len(items))
        into = <int64_t *>self.block(len(items), sizeof(int64_t))
        for item in items:
            if item is None:
                into[i] = numbers.missing
            else:
                into[i] = _number(item, name, i, low, high)
            i += 1
        numbers.width = sizeof(int64_t)
        numbers.base = <const char *>into
        numbers.stride = sizeof(int64_t)
        return 0

    # -- headers

    cdef const ck_headers_t *headers_column(self, object headers) except? NULL:
        """Read the headers of all records. Returns NULL if there are none."""
        cdef ArrowData arrow
        if headers is None:
            return NULL
        if isinstance(headers, dict) or isinstance(headers, Mapping):
            self._named(headers)
            return &self._headers if self._headers.named_cnt else NULL
        if not isinstance(headers, (list, tuple)) and is_arrow(headers):
            arrow = self._arrow(headers, "headers")
            arrow.whole_headers(None, "headers", &self._headers)
            return &self._headers
        self._listed(items_of(headers, "headers", "a dict, a list of pairs or None"))
        return &self._headers

    cdef int _named(self, object headers) except -1:
        cdef tuple pairs = tuple(headers.items())
        cdef ck_column_t *columns
        cdef ck_bytes_t *names
        cdef Py_ssize_t i = 0
        columns = <ck_column_t *>self.block(len(pairs), sizeof(ck_column_t))
        names = <ck_bytes_t *>self.block(len(pairs), sizeof(ck_bytes_t))
        for name, data in pairs:
            self._objects.append(name)
            _header_name(name, &names[i])
            if isinstance(data, (bytes, str, bytearray)) or (
                    isinstance(data, memoryview) and data.ndim == 1 and data.itemsize == 1):
                if not isinstance(data, (bytes, str)):
                    data = bytes(data)
                self._objects.append(data)
                memset(&columns[i], 0, sizeof(ck_column_t))
                self._header(name, data, &names[i], &columns[i].u.constant, -1)
                columns[i].kind = CK_COLUMN_CONSTANT
            else:
                self.bytes_column(data, f"headers[{name!r}]", &columns[i])
            i += 1
        self._headers.names = names
        self._headers.named = columns
        self._headers.named_cnt = len(pairs)
        return 0

    cdef int _listed(self, tuple entries) except -1:
        cdef Pairs pairs = Pairs.__new__(Pairs)
        cdef int64_t *starts
        cdef Py_ssize_t i = 0
        cdef list kept = self._objects
        self.count("headers", len(entries))
        starts = <int64_t *>self.block(len(entries) + 1, sizeof(int64_t))
        self._objects.append(entries)
        self._objects.append(pairs)
        for entry in entries:
            starts[i] = pairs._cnt
            if type(entry) is dict:
                for name, value in (<dict>entry).items():
                    # The dict may change when the GIL is released.
                    kept.append(name)
                    kept.append(value)
                    pairs.reserve()
                    self._header(name, value, &pairs._names[pairs._cnt],
                                 &pairs._values[pairs._cnt], i)
                    pairs._cnt += 1
            elif entry is not None:
                self._pairs_of(entry, pairs, i)
            i += 1
        starts[i] = pairs._cnt
        self._headers.starts64 = starts
        self._headers.keys.kind = CK_COLUMN_POINTERS
        self._headers.keys.u.items = pairs._names
        self._headers.values.kind = CK_COLUMN_POINTERS
        self._headers.values.u.items = pairs._values
        return 0

    cdef int _pairs_of(self, object entry, Pairs pairs, Py_ssize_t i) except -1:
        """Read the headers of record i, given as pairs."""
        if isinstance(entry, dict):
            entry = entry.items()
        elif not isinstance(entry, (list, tuple)):
            raise TypeError(f"headers[{i}]: expected a dict, a list of (name, value) or None, "
                            f"got {type(entry).__name__}")
        entry = tuple(entry)  # the copy keeps the pairs
        self._objects.append(entry)
        for pair in <tuple>entry:
            if type(pair) is not tuple:
                if not isinstance(pair, (tuple, list)):
                    raise TypeError(f"headers[{i}]: expected (name, value) pairs, found {pair!r}")
                pair = tuple(pair)
                self._objects.append(pair)
            if len(<tuple>pair) != 2:
                raise TypeError(f"headers[{i}]: expected (name, value) pairs, found {pair!r}")
            pairs.reserve()
            self._header((<tuple>pair)[0], (<tuple>pair)[1], &pairs._names[pairs._cnt],
                         &pairs._values[pairs._cnt], i)
            pairs._cnt += 1
        return 0

    cdef int _header(self, object name, object value, ck_bytes_t *names, ck_bytes_t *values,
                     Py_ssize_t record) except -1:
        """Read a header's name and value."""
        cdef Py_ssize_t size
        _header_name(name, names)
        if PyBytes_Check(value):
            values.ptr = PyBytes_AS_STRING(value)
            values.len = PyBytes_GET_SIZE(value)
        elif value is None:
            values.ptr = NULL
            values.len = 0
        elif PyUnicode_Check(value):
            values.ptr = _utf8(value, &size, "headers", record)
            values.len = size
        else:
            self._other(value, "headers", record, values)
        return 0


cdef int _header_name(object name, ck_bytes_t *into) except -1:
    cdef Py_ssize_t size
    if PyUnicode_Check(name):
        into.ptr = _utf8(name, &size, "header names", -1)
        into.len = size
    elif PyBytes_Check(name):
        into.ptr = PyBytes_AS_STRING(name)
        into.len = PyBytes_GET_SIZE(name)
    else:
        raise TypeError(f"headers: expected a str as name, got {type(name).__name__}")
    if memchr(into.ptr, 0, into.len) is not NULL:
        raise ValueError(f"headers: {name!r} contains a NUL character")
    return 0


cdef const char *_utf8(object text, Py_ssize_t *size, str name, Py_ssize_t i) except NULL:
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        error.reason += f" in {name}" if i < 0 else f" in {name}[{i}]"
        raise


cdef int64_t _number(object item, str name, Py_ssize_t i, int64_t low, int64_t high) except? -2:
    cdef int64_t number
    if PyLong_Check(item):
        try:
            number = item
        except OverflowError:
            pass
        else:
            if low <= number <= high:
                return number
    return int_argument(item, f"{name}[{i}]", low, high)


cdef str _format_of(Py_buffer *buffer):
    return "B" if buffer.format is NULL else buffer.format.decode("ascii", "replace")


cdef str _kind_of(Py_buffer *buffer):
    """Return the items' type code; "" for several fields or foreign byte order."""
    cdef str code = _format_of(buffer)
    if code[:1] in ("@", "=", "|"):
        code = code[1:]
    if code[-1:] in ("s", "w"):
        return code[-1:] if code.lstrip("<>!")[:-1].isdigit() or len(code) == 1 else ""
    return code if len(code) == 1 else ""


cdef tuple items_of(object data, str name, str what):
    """Return the items of a sequence with one item per record."""
    if not isinstance(data, (list, tuple)):
        if isinstance(data, (str, bytes, bytearray)):
            raise TypeError(f"{name}: expected one item per record, got "
                            f"{type(data).__name__}, which is one: put it into a list")
        if not PySequence_Check(data) or isinstance(data, (Mapping, Set)):
            hint = ""
            if isinstance(data, Iterable) and not isinstance(data, Mapping):
                hint = ": convert it to a list"
            raise TypeError(f"{name}: expected a sequence of {what}, "
                            f"got {type(data).__name__}{hint}")
    return tuple(data)


cdef int check_range(const ck_numbers_t *numbers, size_t cnt, str name, int64_t low,
                     int64_t high) except -1:
    """Raise if a number in a column is out of range."""
    cdef int64_t number = low
    cdef size_t i = 0
    with nogil:
        while i < cnt:
            number = ck_numbers_get(numbers, i)
            if not low <= number <= high:
                break
            i += 1
    if i < cnt:
        raise ValueError(f"{name}[{i}]: expected {low} to {high}, got {number}")
    return 0


@cython.final
@cython.no_gc
cdef class Pieces:
    """Pieces of a text.

    ``publish()`` accepts Pieces as values, keys or headers, without a Python object per piece.
    Iteration yields bytes. Slices, and the parts from :meth:`partition`, are Pieces of the same
    text.
    """

    def __init__(self):
        raise TypeError("Pieces come from split()")

    def __dealloc__(self):
        if self._owner is None:
            free(self._items)

    def __len__(self):
        return self._cnt

    def __iter__(self):
        cdef list found = PyList_New(self._cnt)
        cdef Py_ssize_t i
        for i in range(self._cnt):
            piece = PyBytes_FromStringAndSize(<const char *>self._items[i].ptr, self._items[i].len)
            Py_INCREF(piece)
            PyList_SET_ITEM(found, i, piece)
        return iter(found)

    def __getitem__(self, slice part not None):
        cdef Py_ssize_t start, stop, step, cnt
        PySlice_GetIndicesEx(part, self._cnt, &start, &stop, &step, &cnt)
        if step != 1:
            raise ValueError(f"expected a slice with the step 1, got {step}")
        return _part_of(self, self._items + start, cnt)

    def partition(self, bytes delimiter not None):
        """Split each piece at its first delimiter.

        Returns
        -------
        tuple of (Pieces, Pieces) or None
            The parts before and after the delimiters; None if a piece has no delimiter.

        Raises
        ------
        ValueError
            The delimiter is empty.
        """
        cdef const char *mark = _checked_delimiter(delimiter)
        cdef size_t mark_size = PyBytes_GET_SIZE(delimiter)
        cdef Pieces before = Pieces.__new__(Pieces)
        cdef size_t done
        before._items = <ck_bytes_t *>malloc(max(2 * self._cnt, 1) * sizeof(ck_bytes_t))
        if before._items is NULL:
            raise MemoryError
        before._cnt = self._cnt
        before._text = self._text
        with nogil:
            done = ck_split_first(self._items, self._cnt, mark, mark_size, before._items,
                                  before._items + self._cnt)
        if done < <size_t>self._cnt:
            return None
        return before, _part_of(before, before._items + self._cnt, self._cnt)


def split(bytes text not None, bytes delimiter not None):
    """Find the pieces of a text that end with a delimiter.

    Parameters
    ----------
    text : bytes
        The pieces keep a reference to the text.
    delimiter : bytes
        The bytes that end a piece; the piece does not contain them. The search runs from the left.

    Returns
    -------
    tuple of (Pieces, int)
        The pieces, and the index after the last delimiter.

    Raises
    ------
    ValueError
        The delimiter is empty.
    """
    cdef const char *start = PyBytes_AS_STRING(text)
    cdef size_t size = PyBytes_GET_SIZE(text)
    cdef const char *mark = _checked_delimiter(delimiter)
    cdef size_t mark_size = PyBytes_GET_SIZE(delimiter)
    cdef Pieces pieces = Pieces.__new__(Pieces)
    cdef size_t cnt = 0, end = 0
    with nogil:
        pieces._items = ck_split(start, size, mark, mark_size, &cnt, &end)
    if pieces._items is NULL:
        raise MemoryError
    pieces._text = text
    pieces._cnt = cnt
    return pieces, end


cdef const char *_checked_delimiter(bytes delimiter) except NULL:
    if not delimiter:
        raise ValueError("delimiter: expected at least one byte")
    return PyBytes_AS_STRING(delimiter)


cdef Pieces _part_of(Pieces pieces, ck_bytes_t *items, Py_ssize_t cnt):
    cdef Pieces part = Pieces.__new__(Pieces)
    part._items = items
    part._cnt = cnt
    part._text = pieces._text
    part._owner = pieces if pieces._owner is None else pieces._owner
    return part
