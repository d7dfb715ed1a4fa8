"""Configuration: converts a dict of librdkafka properties to an rd_kafka_conf_t."""
import os
import re
from numbers import Number
from uuid import UUID

from libc.stdio cimport FILE, fclose
from libc.stdlib cimport free, malloc
from posix.stdio cimport open_memstream

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport MAX_TEXT, check_value_size, hidden_utf8, plain_str

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.near_miss import did_you_mean

# The keys that cykafka adds to librdkafka's properties.
OWN_KEYS = ("default.topic.config", "delivery.report.only.error", "error_cb", "logger", "oauth_cb",
            "on_commit", "on_delivery", "ssl_ca", "ssl_certificate", "ssl_key", "stats_cb",
            "throttle_cb")

# Properties that librdkafka writes into requests.
_IN_REQUESTS = {"client.id", "client.rack", "group.id", "group.instance.id", "group.protocol.type",
                "group.remote.assignor", "transactional.id"}

# Properties with the brokers' host:port. librdkafka would treat a user and password in them as
# part of the host name, and log them.
_OF_BROKERS = {"bootstrap.servers", "metadata.broker.list"}
# Properties whose values must not appear in logs.
_SECRET = re.compile(r"password|passphrase|secret|private\.key|\.pem$|sasl\.username"
                     r"|oauthbearer\.config")
# A URL after its scheme, up to a character that conf_set() refuses in URLs. The pattern does not
# include the "@" after user and password: searching a list of addresses for it would take
# quadratic time.
_AFTER_SCHEME = re.compile(r"""(?<=://)[^ \t\r\n"']+""")


cdef dict merged_config(tuple args, dict kwargs, str cls):
    """Copy the configuration from ``X(dict)``, ``X(dict, **kwargs)`` or ``X(**kwargs)``."""
    if len(args) > 1:
        raise TypeError(f"expected tuple containing single dict: {cls} got {len(args)} arguments")
    if args and not isinstance(args[0], dict):
        raise TypeError(f"expected configuration dict: {cls} got {type(args[0]).__name__}")
    if not args and not kwargs:
        raise TypeError(f"expected configuration dict: {cls} got none")
    given = dict(args[0]) if args else {}
    given.update(kwargs)
    return _plain_keys(given, f"{cls}: expected str keys in the configuration")


cdef dict _plain_keys(dict given, str expected):
    """Copy a dict, with plain str keys."""
    config = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(f"{expected}, found {key!r}")
        config[plain_str(key)] = value
    return config


cdef object take_callable(dict config, str key):
    """Remove a callback from the configuration and return it; None if it is missing."""
    callback = config.pop(key, None)
    if callback is not None and not callable(callback):
        raise TypeError(f"{key}: expected a callable, got {type(callback).__name__}")
    return callback


cdef bint take_bool(dict config, str key, bint default) except? -1:
    """Remove a boolean from the configuration and return it."""
    value = config.pop(key, None)
    if value is None:
        return default
    text = _text(key, value).strip().lower()
    if text in ("true", "t", "1"):
        return True
    if text in ("false", "f", "0"):
        return False
    raise _invalid(f'{key}: expected true or false, got "{value}"')


cdef int set_default(dict config, str key, value) except -1:
    """Set a cykafka default, unless the configuration or its default.topic.config has the
    property."""
    topic_config = config.get("default.topic.config")
    if config.get(key) is None and not (isinstance(topic_config, dict) and key in topic_config):
        config[key] = value
    return 0


cdef rd_kafka_conf_t *conf_from(dict config) except NULL:
    """Create an rd_kafka_conf_t, which the caller destroys or passes to rd_kafka_new()."""
    cdef rd_kafka_conf_t *conf = rd_kafka_conf_new()
    try:
        config = dict(config)
        # Load plugins first, because they add properties.
        plugins = config.pop("plugin.library.paths", None)
        if plugins is not None:
            conf_set(conf, "plugin.library.paths", plugins)
        # Properties in default.topic.config take precedence over the same properties outside it.
        topic_config = config.pop("default.topic.config", None)
        if topic_config is not None:
            if not isinstance(topic_config, dict):
                raise TypeError("default.topic.config: expected a dict, "
                                f"got {type(topic_config).__name__}")
            config.update(_plain_keys(dict(topic_config),
                                      "default.topic.config: expected str keys"))
        certificates = {key: config.pop(key, None) for key in ("ssl_ca", "ssl_certificate",
                                                               "ssl_key")}
        for key, value in config.items():
            conf_set(conf, key, value)
        # Set certificates last, because ssl.key.password may have to decrypt them.
        for key, value in certificates.items():
            if value is not None:
                _set_certificate(conf, key, value)
    except:
        rd_kafka_conf_destroy(conf)
        raise
    return conf


def check_config(dict config not None):
    """Raise KafkaException if librdkafka refuses a property or value. Does not create a client."""
    rd_kafka_conf_destroy(conf_from(config))


cdef int conf_set(rd_kafka_conf_t *conf, str key, value) except -1:
    """Set one property. None keeps the default."""
    cdef char errstr[512]
    cdef rd_kafka_conf_res_t res
    if value is None:
        if key not in known_properties():
            raise _unknown(key)
        return 0
    if key == "enabled_events":
        # With this property librdkafka would return events instead of messages, and abort.
        raise _invalid('"enabled_events" is internal: use the callbacks')
    name = key.encode()
    try:
        text = hidden_utf8(_text(key, value), key)
    except TypeError:
        if key not in known_properties():
            raise _unknown(key) from None
        raise
    if b"\0" in name or b"\0" in text:
        raise ValueError(f"{key!r}: a configuration value cannot contain a NUL character")
    if key in _OF_BROKERS and b"@" in text:
        raise _invalid(f'{key}: it has an "@"; give user and password in sasl.username and '
                       "sasl.password")
    if key.endswith(".url") and not set(b" \t\r\n\"'").isdisjoint(text):
        raise _invalid(f"{key}: white space and quotes in a URL must be percent-encoded")
    if key in _IN_REQUESTS and len(text) > MAX_TEXT:
        raise ValueError(f"{key}: it has {len(text)} bytes, the limit is {MAX_TEXT} for a string "
                         "in Kafka's protocol")
    res = rd_kafka_conf_set(conf, name, text, errstr, sizeof(errstr))
    if res == RD_KAFKA_CONF_OK:
        return 0
    if res == RD_KAFKA_CONF_UNKNOWN:
        raise _unknown(key)
    words = without_url_secrets(errstr.decode("utf-8", "replace").strip())
    # librdkafka's text may use another name for the property, so add the user's spelling.
    raise _invalid(words if f'"{key}"' in words else f'{words} (given as "{key}")')


cdef int _set_certificate(rd_kafka_conf_t *conf, str key, value) except -1:
    """Set a certificate or key from memory, as PEM, DER or PKCS#12."""
    cdef char errstr[512]
    cdef rd_kafka_cert_type_t kind = RD_KAFKA_CERT_PUBLIC_KEY
    cdef bytes data
    if isinstance(value, str):
        value = hidden_utf8(plain_str(value), key)
    try:
        data = bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"{key}: expected the bytes of a PEM, DER or PKCS#12 file, "
                        f"got {type(value).__name__}") from None
    check_value_size(len(data), key)
    if key == "ssl_ca":
        kind = RD_KAFKA_CERT_CA
    elif key == "ssl_key":
        kind = RD_KAFKA_CERT_PRIVATE_KEY
    if rd_kafka_conf_set_ssl_cert(conf, kind, _encoding(key, data), <const char *>data, len(data),
                                  errstr, sizeof(errstr)) != RD_KAFKA_CONF_OK:
        raise _invalid(f"{key}: {errstr.decode('utf-8', 'replace').strip()}")
    return 0


cdef rd_kafka_cert_enc_t _encoding(str key, bytes data) except? RD_KAFKA_CERT_ENC_PKCS12:
    if b"-----BEGIN " in data:
        return RD_KAFKA_CERT_ENC_PEM
    if data[:1] != b"\x30":
        raise ValueError(f"{key}: the bytes are neither PEM, nor DER, nor PKCS#12")
    # DER and PKCS#12 are ASN.1 sequences. PKCS#12 begins with its version, the integer 3. Keys
    # have other versions, and certificates begin with a sequence.
    length = data[1] & 0x7f if data[1:2] >= b"\x80" else 0
    if data[2 + length:5 + length] == b"\x02\x01\x03":
        return RD_KAFKA_CERT_ENC_PKCS12
    return RD_KAFKA_CERT_ENC_DER


cdef str property_of(rd_kafka_t *rk, str key):
    """Return an open handle's property as librdkafka spells it; None without a value."""
    cdef rd_kafka_topic_conf_t *topic_conf = rd_kafka_default_topic_conf_dup(rk)
    try:
        return _text_in(rd_kafka_conf(rk), topic_conf, key)
    finally:
        rd_kafka_topic_conf_destroy(topic_conf)


cdef bint is_secret(str key) except -1:
    """Whether a property's value must not be shown. Do not even read the value:
    set_sasl_credentials() may be changing it."""
    return _SECRET.search(key) is not None


cdef str without_url_secrets(str text):
    """Remove users, passwords and queries from URLs, like ck_callback.c. None stays None."""
    return None if text is None else _AFTER_SCHEME.sub(_host_and_path, text)


def _host_and_path(match):
    before, mark, query = match[0].partition("?")
    return "" if "@" in query else before.rpartition("@")[2] + mark


cdef str _text_in(const rd_kafka_conf_t *conf, const rd_kafka_topic_conf_t *topic_conf, str key):
    cdef bytes name = key.encode()
    cdef size_t size = 0
    cdef char *text
    # Look for a client property first, then for a topic property.
    cdef bint of_topic = rd_kafka_conf_get(conf, name, NULL, &size) != RD_KAFKA_CONF_OK
    if of_topic and (topic_conf is NULL or rd_kafka_topic_conf_get(
            topic_conf, name, NULL, &size) != RD_KAFKA_CONF_OK):
        return None
    text = <char *>malloc(size)
    if text is NULL:
        raise MemoryError
    try:
        if of_topic:
            rd_kafka_topic_conf_get(topic_conf, name, text, &size)
        else:
            rd_kafka_conf_get(conf, name, text, &size)
        return text.decode("utf-8", "replace")
    finally:
        free(text)


cdef str text_conf(const rd_kafka_conf_t *conf, str key):
    """Return a client property's value as librdkafka stored it: without leading white space, and
    perhaps from a plugin. None without a value."""
    return _text_in(conf, NULL, key)


cdef int int_conf(rd_kafka_conf_t *conf, str key, int default):
    """Return a numeric property's value."""
    cdef char text[64]
    cdef size_t size = sizeof(text)
    if rd_kafka_conf_get(conf, key.encode(), text, &size) != RD_KAFKA_CONF_OK:
        return default
    return int(text.decode())


cdef str _text(str key, value):
    if isinstance(value, str):
        return plain_str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Number, UUID)):  # also numpy's
        return str(value)
    if isinstance(value, bytes):
        start = -1
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            start = error.start  # do not chain the exception: its value may be a secret
        raise ValueError(f"{key}: the byte at index {start} is not UTF-8")
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"{key}: expected a str, bool, int, float or None, "
                    f"got {type(value).__name__}")


cdef object _invalid(str words):
    return KafkaException(KafkaError(<int>RD_KAFKA_RESP_ERR__INVALID_ARG, words))


cdef object _unknown(str key):
    hint = did_you_mean(key, [*known_properties(), *OWN_KEYS])
    return _invalid(f'No such configuration property: "{key}"{hint}')


def builtin_features():
    """Return the librdkafka build's features, such as ``"ssl"`` and ``"zstd"``: a list of str."""
    cdef char text[512]
    cdef size_t size = sizeof(text)
    cdef rd_kafka_conf_t *conf = rd_kafka_conf_new()
    rd_kafka_conf_get(conf, "builtin.features", text, &size)
    rd_kafka_conf_destroy(conf)
    return text.decode().split(",")


def known_properties():
    """Return the names of all client and topic properties of the librdkafka build."""
    cdef char *table = NULL
    cdef size_t size = 0
    cdef FILE *stream = open_memstream(&table, &size)
    if stream is NULL:
        return set()
    # Parse the manual: a configuration dump lacks the properties without a default.
    rd_kafka_conf_properties_show(stream)
    fclose(stream)
    text = table[:size].decode("utf-8", "replace")
    free(table)
    return set(re.findall(r"^([a-z][a-z0-9._]+) *[|]", text, re.MULTILINE))
