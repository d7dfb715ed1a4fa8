"""MessageBatch: records in librdkafka's buffers, as rows and as columns.

Read the records (Storage in batch.pxd) either with the GIL, or with a reference that you drop
before you take the GIL again. In both cases, foreign code must not run.
"""
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    Py_buffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_INCREF
from cpython.slice cimport PySlice_GetIndicesEx
cimport cython
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, strcmp

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport plain_str, utf8
from cykafka._core.common.message cimport Message, headers_from, message_from_row
from cykafka._core.common.partition cimport partitions_from

from cykafka._core.common.naming import public
from cykafka._core.common.registry_arguments import check_registry


@cython.final
cdef class Storage:
    """The records of a batch and its slices, and their place in the consumer's list."""

    def __dealloc__(self):
        self.unlink()
        self.release()

    cdef void link(self, void **first) noexcept:
        self._next = first[0]
        if self._next is not NULL:
            (<Storage>self._next)._link = &self._next
        self._link = first
        first[0] = <void *>self

    cdef void unlink(self) noexcept:
        if self._link is NULL:
            return
        self._link[0] = self._next
        if self._next is not NULL:
            (<Storage>self._next)._link = self._link
        self._link = NULL
        self._next = NULL

    cdef bint detach(self) noexcept:
        """Replace the records with a copy in cykafka's memory. False if memory is short."""
        cdef ck_batch_t *held = self._ptr
        cdef ck_batch_t *copy
        cdef bint pinned
        # In a forked child, do not copy: the messages belong to the parent.
        if (held is NULL or held.rows is not NULL
                or held.generation != ck_runtime_generation):
            return True
        ck_batch_ref(held)
        with nogil:
            copy = ck_batch_copy(held)
        # Another thread may have detached or released the batch by now. self._ptr cannot be a new
        # batch at the same address, because this call still has a reference to the old batch.
        if copy is not NULL and self._ptr is held:
            self._ptr = copy
            pinned = self._pinned
            self._pinned = False
            with nogil:
                if pinned:
                    ck_batch_unpin(held)
                ck_batch_unref(held)
                ck_batch_unref(held)
            return True
        with nogil:
            ck_batch_unref(held)
            ck_batch_unref(copy)
        return copy is not NULL

    cdef void release(self) noexcept:
        cdef ck_batch_t *batch = self._ptr
        cdef bint pinned = self._pinned
        self._ptr = NULL
        self._pinned = False
        if batch is not NULL:
            with nogil:
                if pinned:
                    ck_batch_unpin(batch)
                ck_batch_unref(batch)


@cython.final
cdef class Payloads:
    """Keeps a batch's records alive for memoryviews of its values, without the consumer."""

    cdef ck_batch_t *_pinned
    # The next view's bytes; NULL when all views exist.
    cdef const void *_bytes
    cdef Py_ssize_t _size

    def __dealloc__(self):
        if self._pinned is not NULL:
            with nogil:
                ck_batch_unpin(self._pinned)

    cdef void pin(self, ck_batch_t *batch) noexcept:
        ck_batch_pin(batch)
        self._pinned = batch

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._bytes is NULL:
            raise BufferError("views of a batch's bytes come from values() and keys()")
        PyBuffer_FillInfo(buffer, self, <void *>self._bytes, self._size, 1, flags)


@cython.final
cdef class Column:
    """Numbers, one per row, in their own memory."""

    cdef void *_numbers
    cdef Py_ssize_t _cnt
    cdef Py_ssize_t _width

    def __dealloc__(self):
        free(self._numbers)

    cdef int allocate(self, Py_ssize_t cnt, Py_ssize_t width) except -1:
        self._numbers = malloc(max(cnt * width, 1))
        if self._numbers is NULL:
            raise MemoryError
        self._cnt = cnt
        self._width = width
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._numbers is NULL:
            raise BufferError("a column of numbers comes from a batch")
        if flags & PyBUF_WRITABLE:
            raise BufferError("a batch's columns are read-only")
        buffer.buf = self._numbers
        buffer.obj = self
        buffer.len = self._cnt * self._width
        buffer.readonly = 1
        buffer.itemsize = self._width
        if not flags & PyBUF_FORMAT:
            buffer.format = NULL
        elif self._width == sizeof(int64_t):
            buffer.format = b"q"
        else:
            buffer.format = b"i"
        buffer.ndim = 1
        buffer.shape = &self._cnt if flags & PyBUF_ND else NULL
        buffer.strides = &self._width if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL


@cython.final
cdef class Rows:
    """The iterator of a batch."""

    cdef MessageBatch _batch
    cdef Py_ssize_t _next

    def __iter__(self):
        return self

    def __next__(self):
        if self._batch is None or self._next >= self._batch._cnt:
            raise StopIteration
        self._next += 1
        return self._batch.row(self._next - 1)

    def __length_hint__(self):
        return 0 if self._batch is None else self._batch._cnt - self._next


# The garbage collector does not clear a batch: its methods rely on the attributes, and other
# objects can break every cycle.
@cython.final
@cython.no_gc_clear
cdef class MessageBatch(ArrowExport):
    """Records as one object: a sequence of Messages, and columns.

    ``Consumer.consume_batch()`` and ``Consumer.batches()`` return batches. The records stay in
    librdkafka's fetch buffers until the batch and its slices are gone, or until :meth:`release`.
    They pin these buffers (often 1 MB each, which also hold other records). If you keep a batch
    for long, call :meth:`detach`. Closing the consumer detaches all its batches. A batch is
    read-only, and many threads may use it.

    ``batch[i]`` and iteration create Messages on demand. A Message owns its data and pins no
    buffer. ``batch[i:j:k]`` is a MessageBatch that shares the records. ``len(batch)`` counts
    records only. A batch is true if it has records or errors.

    A batch is also Arrow data: ``pyarrow.table(batch)``, ``polars.DataFrame(batch)`` and DuckDB
    copy the columns named in :meth:`select` or, without it, all columns except the headers.

    Raises
    ------
    ValueError
        The batch is used after it was released.
    """

    def __init__(self):
        raise TypeError("a MessageBatch comes from Consumer.consume_batch() or Consumer.batches()")

    cdef ck_batch_t *opened(self) except NULL:
        """The current records; valid until the GIL is released or foreign code runs."""
        if self._storage is None or self._storage._ptr is NULL:
            raise ValueError("the batch was released")
        return self._storage._ptr

    cdef ck_batch_t *arrow_rows(self, size_t *start, ptrdiff_t *step, size_t *cnt) except NULL:
        start[0] = self._start
        step[0] = self._step
        cnt[0] = self._cnt
        return self.opened()

    cdef object name_of(self, const char *name):
        """Return a topic name as a str; equal names share one str."""
        if self._last_name is None or strcmp(name, self._last_name) != 0:
            self._last_topic = PyUnicode_InternFromString(name)
            self._last_name = name
        return self._last_topic

    # -- rows

    def __len__(self):
        self.opened()
        return self._cnt

    def __bool__(self):
        self.opened()
        return self._cnt > 0 or len(self._errors) > 0

    def __iter__(self):
        cdef Rows rows
        self.opened()
        rows = Rows.__new__(Rows)
        rows._batch = self
        return rows

    def __getitem__(self, key):
        cdef Py_ssize_t start, stop, step, cnt, i
        cdef MessageBatch part
        if isinstance(key, slice):
            PySlice_GetIndicesEx(key, self._cnt, &start, &stop, &step, &cnt)
            part = MessageBatch.__new__(MessageBatch)
            self.opened()  # do this last: the lines above may have run foreign code
            part._storage = self._storage
            part._errors = ()
            part._cnt = cnt
            # With at most one row the step has no effect, and it could overflow.
            part._step = self._step * step if cnt > 1 else 1
            part._start = self._start + start * self._step if cnt else 0
            return part
        try:
            i = key
        except OverflowError:
            raise IndexError("MessageBatch index out of range") from None
        except TypeError:
            raise TypeError("MessageBatch indices are integers or slices, "
                            f"not {type(key).__name__}") from None
        if i < 0:
            i += self._cnt
        if not 0 <= i < self._cnt:
            self.opened()
            raise IndexError("MessageBatch index out of range")
        return self.row(i)

    cdef Message row(self, Py_ssize_t i):
        cdef ck_batch_t *batch
        cdef rd_kafka_headers_t *headers
        cdef ck_row_t row
        cdef bint collecting
        i = self._start + i * self._step
        # Disable garbage collection, and so foreign code, while the row points into the batch.
        collecting = PyGC_Disable()
        try:
            batch = self.opened()
            ck_batch_row(batch, i, &row)
            message = message_from_row(&row, self.name_of(row.topic))
            headers = ck_batch_headers(batch, i)
            if headers is not NULL:
                message._c_headers = rd_kafka_headers_copy(headers)
            return message
        finally:
            if collecting:
                PyGC_Enable()

    @property
    def errors(self):
        """Events and errors that arrived instead of records: Messages whose ``error()`` is not
        None.

        The list includes events such as ``_PARTITION_EOF``. It is empty for slices and for
        batches from ``Consumer.batches()``, which raises errors.
        """
        return [] if self._errors is None else list(self._errors)

    def decode(self, registry, value="avro", key=None, *, schema=None, key_schema=None,
               mode="PERMISSIVE"):
        """Return the records as a table, with a column for each field of the values.

        Parameters
        ----------
        registry : cykafka.schemas.SchemaRegistryClient
        value : str
            The format of the values: ``avro``, ``protobuf``, ``json``, ``string`` or ``bytes``.
        key : str, optional
            The format of the keys. None leaves them as bytes.
        schema, key_schema : Schema or str, optional
            The reader's schema: a Schema, a text, or ``SUBJECT:VERSION``. The default is the
            usable schema with the highest id in the batch, or, if headers name schemas by GUID,
            the one with the most fields.
        mode : str
            For records that cannot be decoded: ``PERMISSIVE`` returns null fields and a column
            ``error``, ``DROP`` omits them, ``FAIL`` raises an error.

        Returns
        -------
        pyarrow.Table
            The columns topic, partition, offset, timestamp and key; one column for each field of
            the value, or ``value`` if it is not a record; and ``error`` for ``PERMISSIVE``.

        Raises
        ------
        SerializationError
            ``FAIL``, and a record cannot be decoded. It names topic, partition and offset.
        SchemaRegistryError
            The registry does not respond.
        TypeError
            `registry` is not a client.
        """
        check_registry(registry, "decode_batch")
        return registry.decode_batch(self, value, key, schema=schema, key_schema=key_schema,
                                     mode=mode)

    # -- byte columns

    def values(self, copy=True):
        """Return all values.

        Parameters
        ----------
        copy : bool
            If False, return read-only memoryviews of the records in place, instead of bytes. A
            view keeps the batch's records alive, even after :meth:`release` and after the
            consumer's ``close()``. A thread completes that close when the last view is gone.

        Returns
        -------
        list of bytes (or memoryview) and None
            None for a tombstone.
        """
        return self.copies(False) if copy else self.views(False)

    def keys(self, copy=True):
        """Return all keys.

        Parameters
        ----------
        copy : bool
            As for :meth:`values`.

        Returns
        -------
        list of bytes (or memoryview) and None
            None for a record without a key.
        """
        return self.copies(True) if copy else self.views(True)

    cdef list copies(self, bint of_keys):
        # Create the list first: its allocation may run foreign code, unlike that of bytes.
        cdef list column = PyList_New(self._cnt)
        cdef ck_batch_t *batch = self.opened()
        cdef Py_ssize_t i
        cdef size_t at = self._start, size = 0
        cdef const void *data
        for i in range(self._cnt):
            data = ck_batch_key(batch, at, &size) if of_keys else ck_batch_value(batch, at, &size)
            item = None if data is NULL else PyBytes_FromStringAndSize(<const char *>data, size)
            Py_INCREF(item)
            PyList_SET_ITEM(column, i, item)
            at += self._step
        return column

    cdef list views(self, bint of_keys):
        cdef Payloads payloads = Payloads.__new__(Payloads)
        cdef list column = []
        cdef ck_batch_t *batch = self.opened()
        cdef Py_ssize_t _i
        cdef size_t at = self._start, size = 0
        cdef const void *data
        payloads.pin(batch)
        for _i in range(self._cnt):
            data = ck_batch_key(batch, at, &size) if of_keys else ck_batch_value(batch, at, &size)
            payloads._bytes = data
            payloads._size = size
            column.append(None if data is NULL else PyMemoryView_FromObject(payloads))
            at += self._step
        payloads._bytes = NULL
        return column

    # -- headers

    def header(self, name):
        """Return the values of one header.

        Parameters
        ----------
        name : str

        Returns
        -------
        list of bytes and None
            The last value with that name in each record. None if the record lacks the header or
            the header has no value.
        """
        cdef rd_kafka_headers_t *headers
        cdef const char *c_name
        cdef const void *data
        cdef Py_ssize_t length = 0, i
        cdef ck_batch_t *batch
        cdef size_t at = self._start, size = 0
        cdef list column
        if not isinstance(name, str):
            raise TypeError(f"name: expected a str, got {type(name).__name__}")
        name = plain_str(name)
        c_name = utf8(name, &length, "name")
        if memchr(c_name, 0, length) is not NULL:
            raise ValueError(f"name: {name!r} contains a NUL character")
        column = PyList_New(self._cnt)
        self._parse_headers()
        batch = self.opened()
        for i in range(self._cnt):
            headers = ck_batch_headers(batch, at)
            data = NULL
            if headers is not NULL:
                rd_kafka_header_get_last(headers, c_name, &data, &size)
            item = None if data is NULL else PyBytes_FromStringAndSize(<const char *>data, size)
            Py_INCREF(item)
            PyList_SET_ITEM(column, i, item)
            at += self._step
        return column

    def headers(self):
        """Return the headers of each record.

        Returns
        -------
        list of (list of (str, bytes or None)) and None
            In order, including duplicates. None for a record without headers.
        """
        cdef rd_kafka_headers_t *headers
        cdef list column = []
        cdef ck_batch_t *batch
        cdef size_t at = self._start
        cdef bint collecting
        cdef Py_ssize_t _i
        self._parse_headers()
        collecting = PyGC_Disable()
        try:
            batch = self.opened()
            for _i in range(self._cnt):
                headers = ck_batch_headers(batch, at)
                column.append(None if headers is NULL else headers_from(headers))
                at += self._step
        finally:
            if collecting:
                PyGC_Enable()
        return column

    cdef int _parse_headers(self) except -1:
        """Parse the headers without the GIL, because this is most of the work."""
        cdef ck_batch_t *batch = self.opened()
        ck_batch_ref(batch)
        with nogil:
            ck_batch_parse_headers(batch, self._start, self._step, self._cnt)
            ck_batch_unref(batch)
        return 0

    # -- number columns and topic names

    @property
    def offsets(self):
        """The offsets, one per row: a read-only memoryview of format ``q``."""
        return self.column(CK_NUMBER_OFFSET)

    @property
    def timestamps(self):
        """The timestamps, ms since the epoch, -1 if unknown: a read-only memoryview of format
        ``q``."""
        return self.column(CK_NUMBER_TIMESTAMP)

    @property
    def timestamp_types(self):
        """The timestamp types (``TIMESTAMP_...``): a read-only memoryview of format ``i``."""
        return self.column(CK_NUMBER_TIMESTAMP_TYPE)

    @property
    def partitions(self):
        """The partitions, one per row: a read-only memoryview of format ``i``."""
        return self.column(CK_NUMBER_PARTITION)

    @property
    def leader_epochs(self):
        """The leader epochs (KIP-320), -1 if unknown: a read-only memoryview of format ``i``."""
        return self.column(CK_NUMBER_LEADER_EPOCH)

    @property
    def delivery_counts(self):
        """How often the share group has delivered each record (KIP-932), -1 if the records do not
        come from a share group: a read-only memoryview of format ``i``."""
        return self.column(CK_NUMBER_DELIVERY_COUNT)

    cdef object column(self, ck_number_t number):
        cdef Column column
        cdef ck_batch_t *batch
        self.opened()
        column = None if self._columns is None else self._columns.get(<int>number)
        if column is None:
            column = Column.__new__(Column)
            column.allocate(self._cnt, sizeof(int64_t) if number <= CK_NUMBER_TIMESTAMP
                            else sizeof(int32_t))
            batch = self.opened()
            ck_batch_ref(batch)
            with nogil:
                ck_batch_numbers(batch, self._start, self._step, self._cnt, number,
                                 column._numbers)
                ck_batch_unref(batch)
            if self._columns is None:
                self._columns = {}
            self._columns[<int>number] = column
        return PyMemoryView_FromObject(column)

    @property
    def topics(self):
        """The topic names, one per row: a list of str; equal names share one str."""
        cdef list column = PyList_New(self._cnt)
        cdef ck_batch_t *batch = self.opened()
        cdef const char *name
        cdef const char *last = NULL
        cdef size_t at = self._start
        cdef object topic = None
        cdef Py_ssize_t i
        for i in range(self._cnt):
            name = ck_batch_topic(batch, at)
            if name is not last:
                topic = self.name_of(name)
                last = name
            Py_INCREF(topic)
            PyList_SET_ITEM(column, i, topic)
            at += self._step
        return column

    def positions(self):
        """Return the offsets to commit after processing these records, as for
        ``Producer.send_offsets_to_transaction()``.

        Returns
        -------
        list of TopicPartition
            One per partition, with the offset after its last record; empty for an empty batch.

        Raises
        ------
        ValueError
            The batch was released.
        """
        cdef rd_kafka_topic_partition_list_t *positions = self.c_positions()
        try:
            return partitions_from(positions)
        finally:
            rd_kafka_topic_partition_list_destroy(positions)

    cdef rd_kafka_topic_partition_list_t *c_positions(self) except NULL:
        """Like positions(), but as librdkafka's list, which the caller destroys."""
        cdef rd_kafka_topic_partition_list_t *positions
        cdef ck_batch_t *batch = self.opened()
        ck_batch_ref(batch)
        with nogil:
            positions = ck_batch_positions(batch, self._start, self._step, self._cnt)
            ck_batch_unref(batch)
        return positions

    # -- life

    def detach(self):
        """Copy the records, including those of all slices, and return librdkafka's buffers.

        Detach batches that you keep for long: until then, the buffers stay allocated with all
        their other records. Detaching again does nothing. Closing the consumer also detaches its
        batches.

        Raises
        ------
        MemoryError
            There is too little memory for the copy. The batch stays unchanged.
        """
        self.opened()
        if not self._storage.detach():
            raise MemoryError("not enough memory to detach the batch")

    def release(self):
        """Release the records now, including those of all slices. Views of values keep them alive.

        Leaving a ``with`` block releases the batch. Releasing it again does nothing.
        """
        if self._storage is not None:
            self._storage.release()

    def __enter__(self):
        self.opened()
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.release()

    def __reduce__(self):
        raise TypeError("a MessageBatch cannot be pickled: pickle list(batch), or its columns")

    def __repr__(self):
        if self._storage is None or self._storage._ptr is NULL:
            return "<cykafka.MessageBatch released>"
        errors = f", {len(self._errors)} error(s)" if self._errors else ""
        return f"<cykafka.MessageBatch of {self._cnt} record(s){errors}>"


cdef MessageBatch batch_from(ck_batch_t *gathered, size_t cnt, ck_loans_t *loans, void **first,
                             tuple errors):
    """Create a batch from the next cnt collected messages, and add it to the list that begins at
    first. `errors` already contains the messages with an error. Garbage collection does not run if
    the caller has disabled it."""
    cdef MessageBatch batch = empty_batch(errors)
    cdef ck_batch_t *taken = ck_batch_take(gathered, cnt, loans)
    if taken is NULL:
        raise MemoryError
    fill_batch(batch, taken, first)
    return batch


cdef MessageBatch empty_batch(tuple errors):
    """Create a batch for fill_batch()."""
    cdef MessageBatch batch = MessageBatch.__new__(MessageBatch)
    batch._storage = Storage.__new__(Storage)
    batch._errors = errors
    batch._step = 1
    return batch


cdef void fill_batch(MessageBatch batch, ck_batch_t *taken, void **first) noexcept:
    """Give the batch its records, a ck_batch_t without errors, which it then owns. Add it to the
    list that begins at first."""
    batch._storage._ptr = taken
    batch._storage.link(first)
    batch._cnt = taken.cnt


cdef void detach_all(void **first) noexcept:
    """Detach the batches of the list that begins at first, because their consumer closes. A batch
    without memory for its copy stays unchanged, as if pinned."""
    cdef Storage storage
    while first[0] is not NULL:
        storage = <Storage>first[0]
        storage.unlink()
        if not storage.detach() and storage._ptr is not NULL:
            ck_batch_pin(storage._ptr)
            storage._pinned = True


public("cykafka")(MessageBatch)
