"""The base of administrative requests: librdkafka's objects, options and futures."""
from concurrent.futures import Future, InvalidStateError

from libc.limits cimport INT_MAX, INT_MIN
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strncpy

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.arguments cimport (
    MAX_REQUEST_MS,
    MAX_TEXT,
    int_argument,
    timeout_ms,
    utf8,
)
from cykafka._core.common.errors cimport write_unraisable

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.model import Node

cdef enum:
    UNSET = INT_MIN

# For example on a new cluster, which creates __consumer_offsets for the first request.
_COORDINATOR_MOVES = (<int>RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
                      <int>RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE,
                      <int>RD_KAFKA_RESP_ERR_NOT_COORDINATOR)


cdef class Request:
    """A request to the cluster, and the futures that wait for the response.

    A subclass creates librdkafka's objects in __cinit__, frees them in __dealloc__, submits them
    and decodes the response.
    """

    def __dealloc__(self):
        free(self._objects)

    cdef int reserve(self, Py_ssize_t cnt) except -1:
        self._objects = <void **>calloc(cnt + 1, sizeof(void *))
        if self._objects is NULL:
            raise MemoryError
        return 0

    cdef void add(self, void *object) noexcept:
        self._objects[self._cnt] = object
        self._cnt += 1

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        """Pass the request to librdkafka, which copies it."""

    cdef object decode(self, rd_kafka_event_t *event):
        """Return the single future's result, or for a dict of futures, a dict of results.

        A KafkaError becomes the future's exception.
        """
        raise NotImplementedError

    cdef int settle(self, outcome) except -1:
        """Set every future's outcome. An exception or KafkaError is the outcome of all futures."""
        if isinstance(self._futures, Future):
            _settle(self._futures, outcome)
            return 0
        shared = isinstance(outcome, (KafkaError, BaseException))
        for key, future in self._futures.items():
            if shared:
                _settle(future, outcome)
            elif key in outcome:
                _settle(future, outcome[key])
            else:
                _settle(future, KafkaError(<int>RD_KAFKA_RESP_ERR__BAD_MSG,
                                           f"The cluster's response does not contain {key!r}"))
        return 0


cdef int _settle(future, outcome) except -1:
    # The future's callbacks run here. If one raises, the other futures must still get their
    # outcomes. Only Ctrl-C can arrive before the future is done: then retry.
    for _ in range(3):
        try:
            if isinstance(outcome, KafkaError):
                future.set_exception(KafkaException(_explained(outcome)))
            elif isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        except InvalidStateError:
            return 0  # other code has set the outcome
        except BaseException as exception:
            write_unraisable(exception, future)
        if future.done():
            return 0
    return 0


cdef object _explained(error):
    """Return the error, with a remedy if a group's coordinator is the reason."""
    code = error.code()
    if code not in _COORDINATOR_MOVES:
        return error
    return KafkaError(code, f"{KafkaError(code).str()}: the group's coordinator is starting, or "
                      "has moved; repeat the request", retriable=True)


# -- options

cdef int choose_options(options_t *chosen, dict options) except -1:
    """Check the options and store them, so that new_options() needs no Python."""
    chosen.request_timeout = _milliseconds(options, "request_timeout")
    chosen.operation_timeout = _milliseconds(options, "operation_timeout")
    chosen.validate_only = _flag(options, "validate_only")
    chosen.broker = _number(options, "broker")
    chosen.require_stable = _flag(options, "require_stable")
    chosen.include_authorized_operations = _flag(options, "include_authorized_operations")
    chosen.isolation_level = _number(options, "isolation_level")
    chosen.state_cnt = _numbers(chosen.states, options, "states")
    chosen.type_cnt = _numbers(chosen.types, options, "types")
    if options:
        raise TypeError(f"unexpected options: {', '.join(options)}")
    return 0


cdef int _milliseconds(dict options, str name) except? -2:
    cdef int64_t ms
    seconds = options.pop(name, None)
    if seconds is None:
        return UNSET
    ms = timeout_ms(seconds, name)
    if not 0 <= ms <= MAX_REQUEST_MS:
        raise ValueError(f"{name}: expected 0 to {MAX_REQUEST_MS // 1000} seconds, "
                         f"got {seconds!r}")
    return <int>ms


cdef int _flag(dict options, str name) except? -2:
    if name not in options:
        return UNSET
    flag = options.pop(name)
    if not isinstance(flag, bool):
        raise TypeError(f"{name}: expected a bool, got {type(flag).__name__}")
    return flag


cdef int _number(dict options, str name) except? -2:
    number = options.pop(name, None)
    return UNSET if number is None else <int>int_argument(number, name, INT_MIN + 1, INT_MAX)


cdef Py_ssize_t _numbers(int *chosen, dict options, str name) except -1:
    cdef Py_ssize_t i
    numbers = options.pop(name, None) or ()
    if len(numbers) > MAX_CHOICES:
        raise ValueError(f"{name}: expected at most {MAX_CHOICES} items")
    for i, number in enumerate(numbers):
        chosen[i] = <int>int_argument(number, name, 0, INT_MAX)
    return len(numbers)


cdef rd_kafka_AdminOptions_t *new_options(
        rd_kafka_t *rk, rd_kafka_admin_op_t op, const options_t *chosen, void *opaque,
        char *errstr, size_t errstr_size) noexcept nogil:
    """Return librdkafka's options, or NULL and an error text in errstr."""
    cdef rd_kafka_AdminOptions_t *made = rd_kafka_AdminOptions_new(rk, op)
    cdef rd_kafka_error_t *error = NULL
    cdef rd_kafka_resp_err_t err = <rd_kafka_resp_err_t>0
    if made is NULL:
        strncpy(errstr, "this librdkafka does not know the request", errstr_size)
        return NULL
    rd_kafka_AdminOptions_set_opaque(made, opaque)
    if chosen.request_timeout != UNSET:
        err = rd_kafka_AdminOptions_set_request_timeout(made, chosen.request_timeout, errstr,
                                                        errstr_size)
    if not err and chosen.operation_timeout != UNSET:
        err = rd_kafka_AdminOptions_set_operation_timeout(made, chosen.operation_timeout, errstr,
                                                          errstr_size)
    if not err and chosen.validate_only != UNSET:
        err = rd_kafka_AdminOptions_set_validate_only(made, chosen.validate_only, errstr,
                                                      errstr_size)
    if not err and chosen.broker != UNSET:
        err = rd_kafka_AdminOptions_set_broker(made, chosen.broker, errstr, errstr_size)
    if not err and chosen.require_stable != UNSET:
        error = rd_kafka_AdminOptions_set_require_stable_offsets(made, chosen.require_stable)
    if not err and error is NULL and chosen.include_authorized_operations != UNSET:
        error = rd_kafka_AdminOptions_set_include_authorized_operations(
            made, chosen.include_authorized_operations)
    if not err and error is NULL and chosen.isolation_level != UNSET:
        error = rd_kafka_AdminOptions_set_isolation_level(
            made, <rd_kafka_IsolationLevel_t>chosen.isolation_level)
    if not err and error is NULL and chosen.state_cnt:
        error = rd_kafka_AdminOptions_set_match_consumer_group_states(
            made, <const rd_kafka_consumer_group_state_t *>chosen.states, chosen.state_cnt)
    if not err and error is NULL and chosen.type_cnt:
        error = rd_kafka_AdminOptions_set_match_consumer_group_types(
            made, <const rd_kafka_consumer_group_type_t *>chosen.types, chosen.type_cnt)
    if error is not NULL:
        strncpy(errstr, rd_kafka_error_string(error), errstr_size - 1)
        errstr[errstr_size - 1] = 0
        rd_kafka_error_destroy(error)
    elif not err:
        return made
    rd_kafka_AdminOptions_destroy(made)
    return NULL


# -- functions for all requests

cdef const char *c_text(object text, str argument) except NULL:
    """Return a text for Kafka as UTF-8, which lives as long as the str."""
    cdef Py_ssize_t size
    cdef const char *encoded
    if not isinstance(text, str):
        raise TypeError(f"{argument}: expected a str, got {type(text).__name__}")
    encoded = utf8(text, &size, argument)
    # Do not quote the text: it may be a password.
    if "\0" in text:
        raise ValueError(f"{argument}: NUL character at index {text.index(chr(0))}")
    if size > MAX_TEXT:
        raise ValueError(f"{argument}: it has {size} bytes, the limit is {MAX_TEXT} for a string "
                         "in Kafka's protocol")
    return encoded


cdef object text_or_none(const char *text):
    return None if text is NULL else text.decode("utf-8", "replace")


cdef object outcome_of(const rd_kafka_error_t *error, object result):
    """Return the result, or `error` as a KafkaError. librdkafka still owns `error`."""
    if error is NULL or not rd_kafka_error_code(error):
        return result
    words = rd_kafka_error_string(error).decode("utf-8", "replace")
    return KafkaError(<int>rd_kafka_error_code(error), words, rd_kafka_error_is_fatal(error) != 0)


cdef object node_from(const rd_kafka_Node_t *node):
    """Return a copy of a node, or None for NULL, such as a missing leader."""
    if node is NULL:
        return None
    return Node(rd_kafka_Node_id(node), text_or_none(rd_kafka_Node_host(node)),
                rd_kafka_Node_port(node), text_or_none(rd_kafka_Node_rack(node)))


cdef list nodes_from(const rd_kafka_Node_t **nodes, size_t cnt):
    cdef size_t i
    return [node_from(nodes[i]) for i in range(cnt)]


cdef object operations_from(const rd_kafka_AclOperation_t *operations, size_t cnt):
    """Return the operations' numbers, or None if they were not requested."""
    cdef size_t i
    if operations is NULL:
        return None
    return [<int>operations[i] for i in range(cnt)]
