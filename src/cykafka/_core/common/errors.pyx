"""KafkaError, the other exceptions, and functions that create and chain them."""
from functools import total_ordering
from operator import index

from cpython.exc cimport PyErr_SetObject, PyErr_WriteUnraisable

from cykafka._core.clib.librdkafka cimport *

from cykafka._core.common.naming import public


# Error names from older librdkafka versions, with the current names.
_FORMER = {
    "GROUP_LOAD_IN_PROGRESS": "COORDINATOR_LOAD_IN_PROGRESS",
    "GROUP_COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR_FOR_GROUP": "NOT_COORDINATOR",
}


@public("cykafka")
class KafkaException(Exception):
    """Raised for Kafka and librdkafka errors; ``args[0]`` is the :class:`KafkaError`."""


@public("cykafka")
@total_ordering
class KafkaError(KafkaException):
    """An error or event, identified by its code.

    Parameters
    ----------
    error : int
        The code: a constant of this class, such as ``KafkaError._TIMED_OUT``. Negative codes come
        from the client, other codes from a broker.
    reason : str, optional
        The text. The default is the code's description.
    fatal : bool
        The handle is no longer usable (an idempotent or transactional producer, a fenced member).
    retriable : bool
        Repeating the call may succeed (transactions).
    txn_requires_abort : bool
        The program must abort the transaction before it begins another (KIP-360).

    Notes
    -----
    A KafkaError compares and hashes by its code, with other errors and with plain integers. You
    can raise one, as in ``raise msg.error()``: ``except KafkaException`` catches it, and its
    ``args[0]`` is the error itself. The clients raise a KafkaException that contains a KafkaError.
    """

    __slots__ = ("_code", "_fatal", "_reason", "_retriable", "_txn_requires_abort")

    def __init__(self, error, reason=None, fatal=False, retriable=False, txn_requires_abort=False):
        if not hasattr(error, "__index__"):
            raise TypeError(f"error: expected an int, got {type(error).__name__}")
        error = index(error)
        if not -(2**31) <= error < 2**31:
            raise ValueError(f"error: {error} is out of range")
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason: expected a str or None, got {type(reason).__name__}")
        self._code = int(error)
        self._reason = reason
        self._fatal = bool(fatal)
        self._retriable = bool(retriable)
        self._txn_requires_abort = bool(txn_requires_abort)

    @property
    def args(self):
        """A tuple of the error itself, as in a KafkaException."""
        # Create the tuple on demand, because a stored tuple would be a reference cycle.
        return (self,)

    def code(self):
        """The code, an int."""
        return self._code

    def name(self):
        """The code's name, such as ``"_TIMED_OUT"``."""
        return rd_kafka_err2name(<rd_kafka_resp_err_t><int>self._code).decode()

    def str(self):
        """The error's text."""
        if self._reason is not None:
            return self._reason
        return rd_kafka_err2str(<rd_kafka_resp_err_t><int>self._code).decode()

    def fatal(self):
        """Whether the handle is no longer usable."""
        return self._fatal

    def retriable(self):
        """Whether repeating the call may succeed."""
        return self._retriable

    def txn_requires_abort(self):
        """Whether the program must abort the transaction."""
        return self._txn_requires_abort

    def __repr__(self):
        return 'KafkaError{{{}code={},val={},str="{}"}}'.format(
            "FATAL," if self._fatal else "", self.name(), self._code, self.str())

    __str__ = __repr__

    def __bool__(self):
        return self._code != 0

    def __hash__(self):
        return hash(self._code)

    def _other_code(self, other):
        if isinstance(other, KafkaError):
            return other._code
        if isinstance(other, int):
            return other
        return None

    def __eq__(self, other):
        code = self._other_code(other)
        return NotImplemented if code is None else self._code == code

    def __lt__(self, other):
        code = self._other_code(other)
        return NotImplemented if code is None else self._code < code

    def __reduce__(self):
        return (type(self), (self._code, self._reason, self._fatal, self._retriable,
                             self._txn_requires_abort))


@public("cykafka")
class IllegalStateException(RuntimeError):
    """The handle's state does not allow the call."""


@public("cykafka")
class ConcurrentModificationException(RuntimeError):
    """Two threads used a handle at once that allows only one thread at a time."""


@public("cykafka.error")
class ClosedError(IllegalStateException):
    """The handle is closed, or was closed during the call."""


@public("cykafka.error")
class ForkedError(RuntimeError):
    """The handle belongs to the parent process."""


cdef int _add_constants() except -1:
    cdef const rd_kafka_err_desc *descs
    cdef size_t cnt, i
    rd_kafka_get_err_descs(&descs, &cnt)
    for i in range(cnt):
        if descs[i].name is NULL:
            continue
        name = descs[i].name.decode()
        if name not in ("_BEGIN", "_END"):
            setattr(KafkaError, name, <int>descs[i].code)
    for former, name in _FORMER.items():
        setattr(KafkaError, former, getattr(KafkaError, name))
    return 0

_add_constants()


cdef object error_from(rd_kafka_resp_err_t err, const char *words):
    """Create a KafkaError with librdkafka's text, or with the code's description for NULL."""
    return KafkaError(<int>err, None if words is NULL else words.decode("utf-8", "replace"),
                      err == RD_KAFKA_RESP_ERR__FATAL)


cdef int check_doing(rd_kafka_resp_err_t err, str doing) except -1:
    """Raise a KafkaException unless err is NO_ERROR. Its text begins with `doing`, the action that
    failed."""
    if err:
        raise KafkaException(KafkaError(<int>err, f"{doing}: {KafkaError(<int>err).str()}",
                                        err == RD_KAFKA_RESP_ERR__FATAL))
    return 0


cdef object take_error(rd_kafka_error_t *error):
    """Convert an rd_kafka_error_t to a KafkaError, and destroy it."""
    try:
        return KafkaError(<int>rd_kafka_error_code(error),
                          rd_kafka_error_string(error).decode("utf-8", "replace"),
                          rd_kafka_error_is_fatal(error) != 0,
                          rd_kafka_error_is_retriable(error) != 0,
                          rd_kafka_error_txn_requires_abort(error) != 0)
    finally:
        rd_kafka_error_destroy(error)


cdef int check_error(rd_kafka_error_t *error) except -1:
    """Unless error is NULL, raise a KafkaException for it, and destroy it."""
    if error is not NULL:
        raise KafkaException(take_error(error))
    return 0


cdef object chain(object earlier, object later):
    """Return which of two exceptions to raise, with the other as its last context.

    Returns the later exception, unless only the earlier one ends the program (Ctrl-C, SystemExit).
    """
    if earlier is None or earlier is later:
        return later
    if isinstance(later, Exception) and not isinstance(earlier, Exception):
        earlier, later = later, earlier
    last, known = later, [earlier]
    while known[-1].__context__ is not None and len(known) < MAX_CONTEXTS:
        if known[-1].__context__ is later:  # Python's own link: raised while handling `later`
            known[-1].__context__ = None
            break
        known.append(known[-1].__context__)
    for _ in range(MAX_CONTEXTS):
        if last.__context__ is None:
            break
        last = last.__context__
    if not any(error is last for error in known):
        last.__context__ = earlier
    return later


cdef void write_unraisable(object exception, object source) noexcept:
    """Pass an exception to sys.unraisablehook, because the program has no call to raise it in."""
    # Without this, Cython would call PyErr_PrintEx(), and SystemExit would end the process.
    PyErr_SetObject(type(exception), exception)
    PyErr_WriteUnraisable(source)
