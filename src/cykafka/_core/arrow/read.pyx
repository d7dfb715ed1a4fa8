"""ArrowData: reads columns of records from objects with Arrow's PyCapsule interface."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
cimport cython
from libc.errno cimport EINVAL, ENOMEM, ENOSYS
from libc.stdint cimport SIZE_MAX, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from cykafka._core.clib.csrc cimport *
from cykafka._core.common.arguments cimport plain_str, utf8

# pyarrow's type names, by the format letters of the C data interface.
_TYPES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16",
    "i": "int32", "I": "uint32", "l": "int64", "L": "uint64", "e": "halffloat", "f": "float",
    "g": "double", "z": "binary", "Z": "large_binary", "vz": "binary_view", "u": "string",
    "U": "large_string", "vu": "string_view", "tdD": "date32", "tdm": "date64",
    "tts": "time32[s]", "ttm": "time32[ms]", "ttu": "time64[us]", "ttn": "time64[ns]",
    "tDs": "duration[s]", "tDm": "duration[ms]", "tDu": "duration[us]", "tDn": "duration[ns]",
    "tiM": "month_interval", "tiD": "day_time_interval", "tin": "month_day_nano_interval",
    "+s": "struct", "+l": "list", "+L": "large_list", "+vl": "list_view",
    "+vL": "large_list_view", "+m": "map", "+r": "run_end_encoded",
}  # fmt: skip
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_BYTES = "binary or string"
_NUMBERS = "int64"
_TIMES = "timestamp, or int64 in ms"
_HEADERS = "list<struct<key: string, value: binary>>"


# The garbage collector need not track this class, because it refers only to bytes.
@cython.final
@cython.no_gc
cdef class ArrowData:
    """A table or an array, in chunks, read from another object.

    ArrowData owns the arrays and releases them when it is destroyed, so keep it while you read its
    columns. The columns' memory belongs to the producer of the data, which must not change it.
    """

    def __cinit__(self, data, str argument="data"):
        # Try a stream first: if data has both interfaces, it may not fit into one array.
        self._kept = []
        give = getattr(data, "__arrow_c_stream__", None)
        if give is not None:
            self._read_stream(give(), argument)
        else:
            give = getattr(data, "__arrow_c_array__", None)
            if give is None:
                raise TypeError(f"{argument}: expected Arrow data, which has __arrow_c_stream__() "
                                f"or __arrow_c_array__(), got {type(data).__name__}")
            self._read_array(give(), argument)
        self._check(argument)

    def __dealloc__(self):
        cdef size_t i
        # Release the GIL: the producer may wait for one of its threads that needs it.
        with nogil:
            for i in range(self.cnt):
                if self._chunks[i].release is not NULL:
                    self._chunks[i].release(&self._chunks[i])
            if self._schema.release is not NULL:
                self._schema.release(&self._schema)
        free(self._chunks)

    cdef int _read_stream(self, object capsule, str argument) except -1:
        cdef ArrowArrayStream *given
        cdef ArrowArrayStream stream
        cdef int code
        given = <ArrowArrayStream *>_pointer(capsule, "arrow_array_stream", argument)
        if given.release is NULL:
            raise ValueError(f"{argument}: the Arrow stream was read or released already")
        stream = given[0]
        given.release = NULL
        try:
            # The producer may block, or take the GIL to run its own Python code.
            with nogil:
                code = stream.get_schema(&stream, &self._schema)
            if code:
                self._schema.release = NULL
                _raise_stream(&stream, code, argument)
            while True:
                PyErr_CheckSignals()
                self._reserve()
                with nogil:
                    code = stream.get_next(&stream, &self._chunks[self.cnt])
                if code:
                    _raise_stream(&stream, code, argument)
                if self._chunks[self.cnt].release is NULL:
                    return 0
                self.cnt += 1
        finally:
            with nogil:
                if stream.release is not NULL:
                    stream.release(&stream)

    cdef int _read_array(self, object pair, str argument) except -1:
        cdef ArrowSchema *schema
        cdef ArrowArray *array
        if not isinstance(pair, tuple) or len(<tuple>pair) != 2:
            raise TypeError(f"{argument}: __arrow_c_array__() returned {type(pair).__name__}, "
                            "expected a tuple of two capsules")
        schema = <ArrowSchema *>_pointer((<tuple>pair)[0], "arrow_schema", argument)
        array = <ArrowArray *>_pointer((<tuple>pair)[1], "arrow_array", argument)
        if schema.release is NULL or array.release is NULL:
            raise ValueError(f"{argument}: the Arrow array was read or released already")
        self._reserve()
        self._schema = schema[0]
        schema.release = NULL
        self._chunks[0] = array[0]
        array.release = NULL
        self.cnt = 1
        return 0

    cdef int _reserve(self) except -1:
        """Make room for one more chunk, and zero it."""
        cdef ArrowArray *grown
        if self.cnt == self._room:
            grown = <ArrowArray *>realloc(
                self._chunks, (self._room * 2 + 1) * sizeof(ArrowArray))
            if grown is NULL:
                raise MemoryError
            self._chunks = grown
            self._room = self._room * 2 + 1
        memset(&self._chunks[self.cnt], 0, sizeof(ArrowArray))
        return 0

    cdef int _check(self, str argument) except -1:
        """Check that every chunk matches the schema and that no row of a table is null."""
        cdef ck_arrow_view_t view
        cdef ck_arrow_problem_t problem
        cdef ck_arrow_result_t result
        cdef int64_t row
        cdef size_t i
        if (self._schema.release is NULL or self._schema.format is NULL
                or self._schema.n_children < 0
                or (self._schema.n_children > 0 and self._schema.children is NULL)):
            raise ValueError(f"{argument}: the Arrow schema is released or incomplete")
        for i in range(self.cnt):
            result = ck_arrow_root(&self._schema, &self._chunks[i], &view, &problem)
            if result:
                self._refuse(result, &problem, &view, i, None, argument, "")
            if self.is_table():
                row = ck_arrow_first_null(&view)
                if row >= 0:
                    raise ValueError(
                        f"{argument}: row {self.length + row} is null as a whole, so it is not a "
                        "record; filter such rows out, or replace them by rows of nulls")
            self.length += view.length
        return 0

    cdef bint is_table(self):
        """Whether the data has named columns."""
        return self._schema.format[0] == b"+" and self._schema.format[1] == b"s"

    cdef size_t rows(self, size_t chunk):
        return self._chunks[chunk].length

    cdef int _view(self, size_t chunk, object name, str argument,
                   ck_arrow_view_t *view) except -1:
        """View a column of a table, or all data if name is None. Without chunks, only the type."""
        cdef ck_arrow_view_t whole
        cdef ck_arrow_problem_t problem
        cdef ck_arrow_result_t result
        cdef Py_ssize_t size
        cdef const char *c_name
        cdef int64_t i
        memset(view, 0, sizeof(ck_arrow_view_t))
        if name is None:
            view.schema = &self._schema
            if self.cnt:
                ck_arrow_root(&self._schema, &self._chunks[chunk], view, &problem)
            return 0
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected a column name, "
                            f"got {type(name).__name__}")
        name = plain_str(name)
        if not self.is_table():
            raise TypeError(f"{argument}: the data has no column {name!r}, because its Arrow "
                            f"type is {_type_name(&self._schema, 0)}; expected a table")
        c_name = utf8(name, &size, argument)
        i = ck_arrow_find(&self._schema, c_name, size)
        if i < 0:
            raise ValueError(
                f"{argument}: the data has {'no column' if i == -1 else 'several columns'} "
                f"{name!r}; its columns are {_names(&self._schema)}")
        if not self.cnt:
            view.schema = self._schema.children[i]
            if view.schema.format is NULL:
                raise ValueError(f"{argument}: the column {name!r} has no type")
            return 0
        ck_arrow_root(&self._schema, &self._chunks[chunk], &whole, &problem)
        result = ck_arrow_field(&whole, i, view, &problem)
        if result:
            self._refuse(result, &problem, view, chunk, name, argument, "")
        return 0

    cdef int _refuse(self, ck_arrow_result_t result, const ck_arrow_problem_t *problem,
                     const ck_arrow_view_t *view, size_t chunk, object name, str argument,
                     str wanted) except -1:
        cdef size_t row = 0
        cdef size_t i
        where = "the array" if name is None else f"the column {name!r}"
        for i in range(chunk):
            row += self.rows(i)
        if result == CK_ARROW_TYPE:
            raise TypeError(f"{argument}: {where} has the Arrow type "
                            f"{_type_name(view.schema, 0)}; cast it to {wanted}")
        if result == CK_ARROW_BROKEN:
            raise ValueError(f"{argument}: {where} is not a valid Arrow array: "
                             f"{problem.text.decode()}")
        raise ValueError(f"{argument}: in row {row + problem.row} of {where} "
                         f"{problem.text.decode()}")

    cdef int column(self, size_t chunk, object name, str argument,
                    ck_column_t *column) except -1:
        """Read the byte strings of a chunk's column, or of the array itself if name is None.

        Without chunks, pass 0 as chunk: like numbers() and headers(), this then only checks the
        type.
        """
        cdef ck_arrow_view_t view
        cdef ck_arrow_problem_t problem
        cdef ck_arrow_result_t result
        self._view(chunk, name, argument, &view)
        result = ck_arrow_column(&view, column, &problem)
        if result:
            self._refuse(result, &problem, &view, chunk, name, argument, _BYTES)
        return 0

    cdef int numbers(self, size_t chunk, object name, str argument, bint times,
                     ck_numbers_t *numbers) except -1:
        """Read a chunk's integers and, if times is true, timestamps.

        The caller sets numbers.missing, the number that represents null.
        """
        cdef ck_arrow_view_t view
        cdef ck_arrow_problem_t problem
        cdef ck_arrow_result_t result
        cdef int64_t *wide
        self._view(chunk, name, argument, &view)
        result = ck_arrow_numbers(&view, times, numbers, &problem)
        if result == CK_ARROW_WIDEN:
            wide = <int64_t *>self._block(view.length, sizeof(int64_t))
            ck_arrow_widen(&view, numbers.missing, wide)
            _set_wide(numbers, wide)
        elif result:
            self._refuse(result, &problem, &view, chunk, name, argument,
                         _TIMES if times else _NUMBERS)
        return 0

    cdef int headers(self, size_t chunk, object name, str argument,
                     ck_headers_t *headers) except -1:
        """Read the record headers in a chunk."""
        cdef ck_arrow_view_t view
        cdef ck_arrow_problem_t problem
        cdef ck_arrow_result_t result
        self._view(chunk, name, argument, &view)
        result = ck_arrow_headers(&view, headers, &problem)
        if result:
            self._refuse(result, &problem, &view, chunk, name, argument, _HEADERS)
        return 0

    # The same for all chunks. If there are several, these methods collect the items in memory that
    # lives as long as this object.

    cdef int whole_column(self, object name, str argument, ck_column_t *column) except -1:
        cdef ck_column_t part
        cdef ck_bytes_t *items
        cdef size_t i, j
        if self.cnt <= 1:
            return self.column(0, name, argument, column)
        items = <ck_bytes_t *>self._block(self.length, sizeof(ck_bytes_t))
        memset(column, 0, sizeof(ck_column_t))
        column.kind = CK_COLUMN_POINTERS
        column.u.items = items
        for i in range(self.cnt):
            self.column(i, name, argument, &part)
            for j in range(self.rows(i)):
                items[j] = ck_column_get(&part, j)
            items += self.rows(i)
        return 0

    cdef int whole_numbers(self, object name, str argument, bint times,
                           ck_numbers_t *numbers) except -1:
        """Like numbers(), for all chunks."""
        cdef ck_numbers_t part
        cdef int64_t *into
        cdef size_t i, j
        if self.cnt <= 1:
            return self.numbers(0, name, argument, times, numbers)
        into = <int64_t *>self._block(self.length, sizeof(int64_t))
        _set_wide(numbers, into)
        for i in range(self.cnt):
            part.missing = numbers.missing
            self.numbers(i, name, argument, times, &part)
            for j in range(self.rows(i)):
                into[j] = ck_numbers_get(&part, j)
            into += self.rows(i)
        return 0

    cdef int whole_headers(self, object name, str argument, ck_headers_t *headers) except -1:
        cdef ck_headers_t part
        cdef ck_bytes_t *names
        cdef ck_bytes_t *values
        cdef int64_t *starts
        cdef int64_t used = 0
        cdef int64_t begin, end
        cdef size_t i, j
        if self.cnt <= 1:
            return self.headers(0, name, argument, headers)
        starts = <int64_t *>self._block(self.length + 1, sizeof(int64_t))
        memset(headers, 0, sizeof(ck_headers_t))
        headers.starts64 = starts
        for i in range(self.cnt):
            self.headers(i, name, argument, &part)
            for j in range(self.rows(i)):
                starts[j] = used
                ck_headers_pairs(&part, j, &begin, &end)
                used += end - begin
            starts += self.rows(i)
        starts[0] = used
        names = <ck_bytes_t *>self._block(used, sizeof(ck_bytes_t))
        values = <ck_bytes_t *>self._block(used, sizeof(ck_bytes_t))
        headers.keys.kind = CK_COLUMN_POINTERS
        headers.keys.u.items = names
        headers.values.kind = CK_COLUMN_POINTERS
        headers.values.u.items = values
        for i in range(self.cnt):
            self.headers(i, name, argument, &part)
            for j in range(self.rows(i)):
                ck_headers_pairs(&part, j, &begin, &end)
                while begin < end:
                    names[0] = ck_column_get(&part.keys, begin)
                    values[0] = ck_column_get(&part.values, begin)
                    names += 1
                    values += 1
                    begin += 1
        return 0

    cdef void *_block(self, size_t cnt, size_t size) except NULL:
        """Allocate memory for cnt items of this size. It lives as long as this object."""
        cdef bytes block
        if cnt > SIZE_MAX // 4 // size:
            raise MemoryError
        block = PyBytes_FromStringAndSize(NULL, cnt * size)
        self._kept.append(block)
        return PyBytes_AS_STRING(block)

    # Methods for tests.

    def read_column(self, name=None):
        """Return a column's byte strings, or the array's: a list of bytes or None."""
        cdef ck_column_t column
        cdef size_t i
        self.whole_column(name, "data", &column)
        return [_bytes(ck_column_get(&column, i)) for i in range(self.length)]

    def read_numbers(self, name=None, *, times=False, missing=-1):
        """Return a column's numbers, or the array's: a list of int, with timestamps in ms."""
        cdef ck_numbers_t numbers
        cdef size_t i
        numbers.missing = missing
        self.whole_numbers(name, "data", times, &numbers)
        return [ck_numbers_get(&numbers, i) for i in range(self.length)]

    def read_headers(self, name=None):
        """Return a column's headers, or the array's: one list of pairs per record."""
        cdef ck_headers_t headers
        cdef int64_t begin, end, k
        cdef size_t i
        cdef list result = []
        self.whole_headers(name, "data", &headers)
        for i in range(self.length):
            ck_headers_pairs(&headers, i, &begin, &end)
            result.append([(_bytes(ck_column_get(&headers.keys, k)),
                            _bytes(ck_column_get(&headers.values, k)))
                           for k in range(begin, end)])
        return result


cdef bint is_arrow(object data) except -1:
    """Whether the class of an object has Arrow's PyCapsule interface."""
    cdef object cls = type(data)
    return hasattr(cls, "__arrow_c_stream__") or hasattr(cls, "__arrow_c_array__")


cdef void *_pointer(object capsule, const char *name, str argument) except NULL:
    # The capsule's destructor releases its contents unless the caller moves them out.
    if not PyCapsule_IsValid(capsule, name):
        raise TypeError(f"{argument}: expected a capsule named {name.decode()}, "
                        f"got {capsule!r:.100}")
    return PyCapsule_GetPointer(capsule, name)


cdef int _raise_stream(ArrowArrayStream *stream, int code, str argument) except -1:
    cdef const char *text
    with nogil:
        text = stream.get_last_error(stream)
    words = f"{argument}: the Arrow stream failed"
    if text is not NULL:
        words += f": {text.decode('utf-8', 'replace')}"
    if code == ENOMEM:
        raise MemoryError(words)
    if code == EINVAL:
        raise ValueError(words)
    if code == ENOSYS:
        raise NotImplementedError(words)
    raise OSError(code, words)


cdef void _set_wide(ck_numbers_t *numbers, const int64_t *wide) noexcept:
    """Describe 64-bit numbers without nulls, in memory that ArrowData owns."""
    cdef int64_t missing = numbers.missing
    memset(numbers, 0, sizeof(ck_numbers_t))
    numbers.missing = missing
    numbers.width = sizeof(int64_t)
    numbers.stride = sizeof(int64_t)
    numbers.base = <const char *>wide


cdef object _bytes(ck_bytes_t item):
    if item.ptr is NULL:
        return None
    return PyBytes_FromStringAndSize(<const char *>item.ptr, item.len)


cdef str _names(const ArrowSchema *schema):
    cdef int64_t i
    names = [_name(schema.children[i]) for i in range(min(schema.n_children, 30))]
    if schema.n_children > 30:
        names.append("...")
    return ", ".join(names) or "none"


cdef str _name(const ArrowSchema *schema):
    if schema is NULL or schema.name is NULL:
        return ""
    return schema.name.decode("utf-8", "replace")


cdef str _type_name(const ArrowSchema *schema, int depth):
    """Return the name of a type. depth stops the recursion if a schema contains itself."""
    cdef int64_t i
    if schema is NULL or schema.format is NULL or depth > 4:
        return "..."
    letters = schema.format.decode("utf-8", "replace")
    if schema.dictionary is not NULL:
        return (f"dictionary<values={_type_name(schema.dictionary, depth + 1)}, "
                f"indices={_TYPES.get(letters, letters)}>")
    if letters.startswith("ts") and letters[2:3] in _UNITS:
        zone = letters[4:]
        return f"timestamp[{_UNITS[letters[2:3]]}{', tz=' + zone if zone else ''}]"
    kind, _, parameters = letters.partition(":")
    name = _TYPES.get(kind) or {
        "w": "fixed_size_binary", "d": "decimal", "+w": "fixed_size_list", "+ud": "dense_union",
        "+us": "sparse_union",
    }.get(kind, letters)  # fmt: skip
    if schema.n_children > 0 and schema.children is not NULL:
        parts = [f"{_name(schema.children[i])}: {_type_name(schema.children[i], depth + 1)}"
                 for i in range(min(schema.n_children, 8))]
        name += f"<{', '.join(parts)}>"
    if parameters:
        name += f"[{parameters}]"
    return name
