"""ArrowExport: a base class of MessageBatch that exports consumed records as Arrow arrays.

The arrays have the columns of Spark's Kafka source, so Spark uses them unchanged. C copies the
records without the GIL and frees the copy itself. The copy outlives the batch and the consumer,
and freeing it does not need the GIL.
"""
from cpython.pycapsule cimport (
    PyCapsule_Destructor,
    PyCapsule_GetPointer,
    PyCapsule_IsValid,
    PyCapsule_New,
)
cimport cython
from libc.errno cimport EOVERFLOW
from libc.stddef cimport ptrdiff_t
from libc.stdlib cimport calloc, free

from cykafka._core.clib.csrc cimport *
from cykafka._core.common.arguments cimport plain_str

_NAMES = {ck_arrow_name(<ck_arrow_name_t>i).decode(): i for i in range(CK_ARROW_NAME__CNT)}

# Spark's columns, which come first, without the headers.
cdef ck_arrow_name_t _DEFAULT[CK_ARROW_HEADERS]
cdef size_t _i
for _i in range(CK_ARROW_HEADERS):
    _DEFAULT[_i] = <ck_arrow_name_t>_i

cdef size_t _max_bytes = CK_ARROW_MAX_BYTES


cdef class ArrowExport:
    """The methods of a batch that implement Arrow's PyCapsule interface."""

    cdef ck_batch_t *arrow_rows(self, size_t *start, ptrdiff_t *step, size_t *cnt) except NULL:
        raise TypeError("this object has no records")

    def __arrow_c_schema__(self):
        """Return the arrays' type as a PyCapsule.

        The arrays have the schema of Spark's Kafka source: a struct of ``key: binary``,
        ``value: binary``, ``topic: string``, ``partition: int32``, ``offset: int64``,
        ``timestamp: timestamp[us, tz=UTC]`` and ``timestampType: int32`` (-1: no timestamp, 0: set
        by the producer, 1: set by the broker). All fields are nullable. To export the headers or
        fewer columns, call :meth:`select`.
        """
        return _schema(_DEFAULT, CK_ARROW_HEADERS)

    def __arrow_c_array__(self, requested_schema=None):
        """Copy the records into one Arrow array; return capsules of its type and the array.

        ``pyarrow.record_batch(batch)`` and ``polars.DataFrame(batch)`` call this.

        Parameters
        ----------
        requested_schema : capsule, optional
            Ignored: the array keeps its own type.

        Returns
        -------
        tuple of two capsules

        Raises
        ------
        OverflowError
            A column would exceed 2 GiB: slice the batch, or read it as a stream.
        ValueError
            The batch was released.
        """
        return _array(self, _DEFAULT, CK_ARROW_HEADERS, requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """Copy the records into a stream of Arrow arrays.

        The stream has a single array, unless a column would exceed 2 GiB.

        ``pyarrow.table(batch)``, nanoarrow and DuckDB call this.

        Parameters
        ----------
        requested_schema : capsule, optional
            Ignored: the arrays keep their own type.

        Returns
        -------
        capsule

        Raises
        ------
        ValueError
            The batch was released.
        """
        return _stream(self, _DEFAULT, CK_ARROW_HEADERS, requested_schema)

    def select(self, *columns):
        """Select columns to export as Arrow data, in this order.

        Parameters
        ----------
        *columns : str, or one iterable of str
            One or more of ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``,
            ``timestampType``, ``headers`` (``list<element: struct<key: string, value: binary>>``,
            null for a record without headers) and ``deliveryCount`` (``int32``, -1 for records
            that do not come from a share group). Only these columns are copied.

        Returns
        -------
        ArrowColumns

        Raises
        ------
        ValueError
            A column does not exist or is named twice.

        Examples
        --------
        >>> pyarrow.table(batch.select("key", "value", "headers"))  # doctest: +SKIP
        """
        cdef ArrowColumns selected = ArrowColumns.__new__(ArrowColumns)
        if len(columns) == 1 and not isinstance(columns[0], str):
            columns = tuple(columns[0])
        names = []
        for name in columns:
            if not isinstance(name, str):
                raise TypeError(f"columns: expected str, got {type(name).__name__}")
            name = plain_str(name)
            if name not in _NAMES:
                raise ValueError(f"columns: unknown column {name!r}; "
                                 f"choose from {', '.join(_NAMES)}")
            if name in names:
                raise ValueError(f"columns: {name!r} appears twice")
            names.append(name)
            selected._names[selected._cnt] = <ck_arrow_name_t><int>_NAMES[name]
            selected._cnt += 1
        selected._batch = self
        return selected


@cython.final
cdef class ArrowColumns:
    """Columns of a batch to export as Arrow data, from ``MessageBatch.select()``.

    The object keeps the batch alive, and copies the columns when a reader requests them.
    """

    cdef ArrowExport _batch
    cdef ck_arrow_name_t _names[CK_ARROW_NAME__CNT]
    cdef size_t _cnt

    def __init__(self):
        raise TypeError("ArrowColumns come from MessageBatch.select()")

    @property
    def columns(self):
        """The column names: a tuple of str."""
        cdef size_t i
        return tuple([ck_arrow_name(self._names[i]).decode() for i in range(self._cnt)])

    def __arrow_c_schema__(self):
        """Return the arrays' type, a struct of the columns, as a PyCapsule."""
        return _schema(self._names, self._cnt)

    def __arrow_c_array__(self, requested_schema=None):
        """Like ``MessageBatch.__arrow_c_array__()``, with these columns."""
        return _array(self._batch, self._names, self._cnt, requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """Like ``MessageBatch.__arrow_c_stream__()``, with these columns."""
        return _stream(self._batch, self._names, self._cnt, requested_schema)

    def __repr__(self):
        return f"<cykafka.ArrowColumns {', '.join(self.columns)}>"


def set_max_bytes(size_t size=CK_ARROW_MAX_BYTES):
    """Limit the bytes of a column; tests set a small limit."""
    global _max_bytes
    _max_bytes = min(size, CK_ARROW_MAX_BYTES)


cdef int _check(ArrowExport batch, object schema) except -1:
    if batch is None:
        raise TypeError("this object has no records")
    if schema is not None and not PyCapsule_IsValid(schema, "arrow_schema"):
        raise TypeError("requested_schema: expected a capsule named arrow_schema or None, "
                        f"got {type(schema).__name__}")
    return 0


cdef object _capsule(size_t size, const char *name, PyCapsule_Destructor destroy):
    """Return a capsule of a zeroed struct."""
    cdef void *data = calloc(1, size)
    if data is NULL:
        raise MemoryError
    try:
        return PyCapsule_New(data, name, destroy)
    except:
        free(data)
        raise


cdef object _schema(const ck_arrow_name_t *names, size_t cnt):
    capsule = _capsule(sizeof(ArrowSchema), "arrow_schema", _destroy_schema)
    if ck_arrow_schema(names, cnt,
                       <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")):
        raise MemoryError
    return capsule


cdef tuple _array(ArrowExport batch, const ck_arrow_name_t *names, size_t names_cnt,
                  object requested_schema):
    cdef ArrowArray *array
    cdef ck_batch_t *rows
    cdef size_t start, cnt
    cdef size_t built = 0
    cdef size_t most = _max_bytes
    cdef ptrdiff_t step
    cdef int error
    _check(batch, requested_schema)
    schema = _schema(names, names_cnt)
    capsule = _capsule(sizeof(ArrowArray), "arrow_array", _destroy_array)
    array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    # Do this last: the code above may run foreign code, which may release the batch.
    rows = batch.arrow_rows(&start, &step, &cnt)
    ck_batch_ref(rows)
    with nogil:
        error = ck_arrow_build(rows, start, step, cnt, names, names_cnt, most, &built, array)
        ck_batch_unref(rows)
    if error:
        raise MemoryError("not enough memory for the records as an Arrow array")
    if built < cnt:
        raise OverflowError(f"only {built} of {cnt} records fit into one Arrow array, whose "
                            f"columns hold {most} bytes each: slice the batch, or read it as a "
                            "stream")
    return schema, capsule


cdef object _stream(ArrowExport batch, const ck_arrow_name_t *names, size_t names_cnt,
                    object requested_schema):
    cdef ArrowArrayStream *stream
    cdef ck_batch_t *rows
    cdef size_t start, cnt
    cdef size_t most = _max_bytes
    cdef ptrdiff_t step
    cdef int error
    _check(batch, requested_schema)
    capsule = _capsule(sizeof(ArrowArrayStream), "arrow_array_stream", _destroy_stream)
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    rows = batch.arrow_rows(&start, &step, &cnt)
    ck_batch_ref(rows)
    with nogil:
        error = ck_arrow_stream(rows, start, step, cnt, names, names_cnt, most, stream)
        ck_batch_unref(rows)
    if error == EOVERFLOW:
        raise OverflowError(
            f"a single record exceeds the {most} bytes of an Arrow column")
    if error:
        raise MemoryError("not enough memory for the records as Arrow arrays")
    return capsule


# A capsule releases its contents unless a reader has moved them out.

cdef void _destroy_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    free(schema)


cdef void _destroy_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    free(array)


cdef void _destroy_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(
        capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    free(stream)
