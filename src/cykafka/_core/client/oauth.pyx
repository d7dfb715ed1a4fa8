"""TokenSource: gets SASL OAUTHBEARER tokens from a Python callback (KIP-255).

librdkafka's background thread takes the GIL and calls `oauth_cb`, so refreshing a token does not
need poll().
"""
import math
import threading

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from cykafka._core.clib.csrc cimport *
cimport cykafka._core.clib.csrc as runtime
from cykafka._core.clib.librdkafka cimport *

from cykafka._core.common.arguments cimport hidden_utf8

from cykafka._core.common.errors import KafkaError, KafkaException

# How long a constructor waits for the first token, s.
_FIRST_TOKEN_TIMEOUT = 10


cdef class TokenSource:
    """Calls `oauth_cb` and passes its tokens to librdkafka."""

    def __cinit__(self, callback):
        self._callback = callback
        self._first = threading.Event()

    cdef int enable(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1:
        """Call this before rd_kafka_new(). The handle keeps this object as long as the rd_kafka_t.
        """
        ck_queue_attach(events, CK_SLOT_TOKENS, <void *>self)
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, _on_refresh)
        rd_kafka_conf_enable_sasl_queue(conf, 1)
        return 0

    cdef int wait(self) except -1:
        """Wait for the first token. Call this after rd_kafka_new()."""
        if not self._first.wait(_FIRST_TOKEN_TIMEOUT):
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,
                f"oauth_cb returned no token within {_FIRST_TOKEN_TIMEOUT} s"))
        if self._failure is not None:
            failure = self._failure
            self._failure = self._raised = None
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,
                f"oauth_cb failed: {_text(failure)}")) from failure
        return 0

    cdef int check(self) except -1:
        """If oauth_cb has raised since the last call, raise its exception."""
        if self._raised is not None:
            raised = self._raised
            self._raised = None
            raise raised
        return 0

    cdef int refresh(self, rd_kafka_t *rk, str config) except -1:
        try:
            _set_token(rk, self._callback(config))
            # An error that no call has raised is over. librdkafka has reported it.
            self._failure = self._raised = None
        except BaseException as failure:
            self._failure = self._raised = failure
            # librdkafka retries in 10 s.
            words = f"oauth_cb: {_text(failure)}".encode(errors="replace")
            rd_kafka_oauthbearer_set_token_failure(rk, words)
        finally:
            self._first.set()
        return 0


cdef void _on_refresh(rd_kafka_t *rk, const char *config, void *opaque) noexcept nogil:
    # While the interpreter exits, the GIL may be unavailable, and clients need no more tokens.
    if not runtime.ck_runtime_exiting:
        _refresh(rk, config, opaque)


cdef void _refresh(rd_kafka_t *rk, const char *config, void *opaque) noexcept with gil:
    cdef TokenSource source = <TokenSource>ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_TOKENS)
    ck_callback_on_background(True)
    try:
        source.refresh(rk, "" if config is NULL else config.decode("utf-8", "replace"))
    finally:
        ck_callback_on_background(False)


cdef str _text(object failure):
    """Return an exception's type and, unless its __str__ raises, its text."""
    name = type(failure).__name__
    try:
        return f"{name}: {failure}"
    except Exception:
        return name


cdef int _set_token(rd_kafka_t *rk, object result) except -1:
    cdef char errstr[512]
    cdef const char **c_extensions = NULL
    cdef const char *c_token
    cdef const char *c_principal
    cdef rd_kafka_resp_err_t err
    cdef int64_t expiry_ms
    cdef size_t cnt, i
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        raise TypeError("oauth_cb: expected a tuple (token, expiry in seconds since the epoch"
                        f"[, principal[, extensions]]), got {type(result).__name__}")
    token, expiry, principal, extensions = result + ("", {})[len(result) - 2:]
    if not isinstance(token, str):
        raise TypeError(f"oauth_cb: expected a str as token, got {type(token).__name__}")
    if not isinstance(extensions, dict):
        raise TypeError("oauth_cb: expected a dict as extensions, "
                        f"got {type(extensions).__name__}")
    if not math.isfinite(expiry):
        raise ValueError(f"oauth_cb: {expiry} is not a valid expiry time")
    expiry_ms = <int64_t>(<double>expiry * 1000)
    token = _plain(token, "token")
    principal = _plain(principal or "", "principal")
    encoded = [_plain(text, "extension") for pair in extensions.items() for text in pair]
    c_token = token
    c_principal = principal
    cnt = len(encoded)
    c_extensions = <const char **>malloc((cnt + 1) * sizeof(char *))
    if c_extensions is NULL:
        raise MemoryError
    try:
        for i in range(cnt):
            c_extensions[i] = <const char *><bytes>encoded[i]
        err = rd_kafka_oauthbearer_set_token(rk, c_token, expiry_ms, c_principal, c_extensions,
                                             cnt, errstr, sizeof(errstr))
    finally:
        free(c_extensions)
    if err:
        words = errstr.decode("utf-8", "replace")
        for secret in (token, *encoded[1::2]):  # librdkafka quotes values that it rejects
            words = words.replace(secret.decode(), "[redacted]") if secret else words
        raise ValueError(f"oauth_cb: {words}")
    return 0


cdef bytes _plain(object text, str what):
    """Encode a part of a token as UTF-8. Errors never show it."""
    if not isinstance(text, str):
        raise TypeError(f"oauth_cb: expected a str as {what}, got {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"oauth_cb: the {what} cannot contain a NUL character")
    return hidden_utf8(text, f"oauth_cb: {what}")
