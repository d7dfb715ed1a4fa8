"""EnvelopeCodec: batches of message envelopes (of pip-services) to records and back.

Attributes are read and set with the GIL. Their bytes are encoded and decoded without it, in
csrc/ck_envelope.
"""
cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t
from libc.string cimport memset

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    CK_COLUMN_POINTERS,
    PyTypeObject,
    ck_bytes_t,
    ck_column_t,
    ck_headers_t,
    ck_publish_t,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport RD_KAFKA_PARTITION_UA
from cykafka._core.common.arguments cimport int_argument, timeout_ms
from cykafka._core.common.message cimport Message
from cykafka._core.envelope.decode cimport EnvelopeRows
from cykafka._core.envelope.encode cimport (
    Gathered,
    Kept,
    MESSAGE_ID,
    MESSAGE_TYPE,
    TRACE_ID,
    bytes_of,
    now_us,
    text_of,
)
from cykafka._core.produce.columns cimport items_of
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport is_large

from cykafka._core.envelope.encode import EnvelopeError

__all__ = ["EnvelopeCodec", "EnvelopeError"]

# Message types that a codec remembers; a power of two.
cdef enum:
    KNOWN = 64

cdef ck_bytes_t[2] NAMES  # of the headers that every record has
NAMES[0].ptr = <const char *>b"message_type"
NAMES[0].len = 12
NAMES[1].ptr = <const char *>b"trace_id"
NAMES[1].len = 8


@cython.final
cdef class EnvelopeCodec:
    """Converts envelopes of one class to records and back, a batch at a time.

    An envelope has the attributes of pip-services' MessageEnvelope: ``message_id``, ``trace_id``,
    ``message_type`` (str or None), ``message`` (bytes or None), ``sent_time`` (datetime or None)
    and ``_MessageEnvelope__reference``.

    Parameters
    ----------
    envelope_type : type
        The class of the decoded envelopes. They are made with ``__new__`` only.
    form : {"headers", "json"}
        ``headers``: the body is the record's value; type and trace id are headers. ``json``: the
        value is a JSON object of all fields, with the body as base64. The key is the envelope's id
        in both forms.
    traceparent : bool, default False
        Trace ids of 32 hexadecimal digits are also sent as a header ``traceparent`` (W3C Trace
        Context). A record without another trace id gets the one of this header.

    Notes
    -----
    Any number of threads may use a codec.
    """

    cdef object _type
    cdef bint _json
    cdef bint _traceparent
    # Recent message types, so that equal ones share one str.
    cdef list _known

    def __init__(self, envelope_type, form="headers", *, traceparent=False):
        if self._type is not None:
            raise TypeError("the codec was initialized already")
        if not isinstance(envelope_type, type):
            raise TypeError(f"envelope_type: expected a class, got {type(envelope_type).__name__}")
        if (<PyTypeObject *>envelope_type).tp_new is NULL:
            raise TypeError(f"envelope_type: {envelope_type.__name__} cannot be made by __new__")
        if not isinstance(form, str):
            raise TypeError(f"form: expected a str, got {type(form).__name__}")
        if form not in ("headers", "json"):
            raise ValueError(f"form: expected 'headers' or 'json', got {form!r}")
        self._traceparent = traceparent
        self._json = form == "json"
        self._known = [None] * KNOWN
        self._type = envelope_type

    # -- to records

    def publish(self, Producer producer not None, topic, envelopes, *, partition=None,
                timestamp_ms=None, timeout=None):
        """Send envelopes as records, as ``Producer.publish()`` sends a batch.

        Parameters
        ----------
        producer : Producer
        topic : str or sequence of str
            Of all records, or of each.
        envelopes : sequence
        partition : int, optional
            None: the ``partitioner`` chooses by the id.
        timestamp_ms : int, optional
            ms since the epoch; None: now.
        timeout : float, optional
            Seconds to wait for room in the queue; None: for ever.

        Returns
        -------
        Delivery

        Raises
        ------
        TypeError
            Something that is no envelope, or has an attribute of another type; it says which.
        EnvelopeError
            An attribute's property has raised something; that is the cause.
        UnicodeEncodeError
            A text that UTF-8 cannot say.
        """
        cdef ck_publish_t publish
        cdef ck_headers_t headers
        cdef ck_column_t[2] named
        cdef Gathered gathered
        cdef Kept kept
        cdef int64_t ms, wait_ms
        self._opened()
        if producer._open_in != ck_runtime_generation:
            producer.refuse()
        memset(&publish, 0, sizeof(publish))
        wait_ms = timeout_ms(timeout, "timeout")
        publish.partitions.missing = RD_KAFKA_PARTITION_UA
        if partition is not None:
            publish.partitions.missing = int_argument(partition, "partition", -1, INT32_MAX)
        ms = 0
        if timestamp_ms is not None:
            ms = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        publish.timestamps.missing = ms
        gathered = self._gather(items_of(envelopes, "envelopes", "envelopes"))
        publish.cnt = gathered._envelopes.cnt
        publish.keys.kind = publish.values.kind = CK_COLUMN_POINTERS
        publish.keys.u.items = gathered._texts[MESSAGE_ID]
        memset(&headers, 0, sizeof(headers))
        if self._json:
            kept = gathered.encode(ms, &publish.values.u.items)
        else:
            kept = gathered._bodies_kept
            publish.values.u.items = gathered._bodies
            memset(named, 0, sizeof(named))
            named[0].kind = named[1].kind = CK_COLUMN_POINTERS
            named[0].u.items = gathered._texts[MESSAGE_TYPE]
            named[1].u.items = gathered._texts[TRACE_ID]
            headers.named_cnt = 2
            headers.names = NAMES
            headers.named = named
            publish.headers = &headers
        if self._traceparent:
            gathered.add_traceparents(&headers)
            publish.headers = &headers
        names = producer._publisher.topics_column(producer, topic, gathered._columns, &publish)
        return producer._publisher.send(producer, &publish, names,
                                        kept if is_large(kept, &publish) else None, wait_ms)

    def to_record(self, envelope, *, timestamp_ms=None):
        """Convert one envelope to the arguments of a record.

        Parameters
        ----------
        envelope : object
        timestamp_ms : int, optional
            ms since the epoch; None: now.

        Returns
        -------
        dict
            ``key`` (str or None), ``value`` (bytes or None), ``headers`` (dict of str to str or
            None) and ``timestamp`` (int, ms).
        """
        cdef Gathered gathered
        cdef const ck_bytes_t *values
        cdef ck_headers_t headers
        cdef ck_bytes_t item
        cdef int64_t ms
        self._opened()
        ms = now_us() // 1000
        if timestamp_ms is not None:
            ms = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        gathered = self._gather((envelope,))
        values = gathered._bodies
        made = {}
        if self._json:
            kept = gathered.encode(ms, &values)  # no-cython-lint: values points to it
        else:
            made["message_type"] = text_of(gathered._texts[MESSAGE_TYPE][0])
            made["trace_id"] = text_of(gathered._texts[TRACE_ID][0])
        if self._traceparent:
            memset(&headers, 0, sizeof(headers))
            gathered.add_traceparents(&headers)
            if headers.starts64[1]:
                item = headers.values.u.items[0]
                made["traceparent"] = text_of(item)
        return {"key": text_of(gathered._texts[MESSAGE_ID][0]), "value": bytes_of(values[0]),
                "headers": made, "timestamp": ms}

    cdef Gathered _gather(self, tuple envelopes):
        cdef Gathered gathered = Gathered.__new__(Gathered)
        gathered.allocate(len(envelopes), self._json)
        gathered.read(envelopes)
        return gathered

    # -- from records

    def decode(self, MessageBatch batch not None):
        """Convert records to envelopes.

        Parameters
        ----------
        batch : MessageBatch

        Returns
        -------
        list
            An envelope for each row. Its reference is the row's Message, its ``sent_time`` a naive
            local datetime. An invalid row gives an EnvelopeError, whose ``message`` is the row's
            Message.

        Raises
        ------
        ValueError
            The batch was released.
        """
        self._opened()
        batch.opened()
        return self._rows().of_batch(batch) if batch._cnt else []

    def to_envelope(self, Message message not None):
        """Convert one record to an envelope.

        Parameters
        ----------
        message : Message

        Returns
        -------
        object
            An envelope, as :meth:`decode` makes them.

        Raises
        ------
        EnvelopeError
            The message is no envelope.
        """
        self._opened()
        return self._rows().of_message(message)

    cdef EnvelopeRows _rows(self):
        cdef EnvelopeRows rows = EnvelopeRows.__new__(EnvelopeRows)
        rows._type = self._type
        rows._json = self._json
        rows._traceparent = self._traceparent
        rows._known = self._known
        return rows

    cdef int _opened(self) except -1:
        if self._type is None:
            raise ValueError("the codec was not initialized")
        return 0
