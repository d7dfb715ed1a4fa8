"""Translate the JVM client's properties for TLS and SASL into librdkafka's."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["security_properties"]

_JAAS = "kafka.sasl.jaas.config"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}
_OTHER_MODULES = {
    "Krb5LoginModule": "for Kerberos use kafka.sasl.kerberos.service.name, .principal and .keytab",
    "OAuthBearerLoginModule": "for tokens use kafka.sasl.oauthbearer.method=oidc and "
    "kafka.sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url",
}
_TO_PEM = {
    "truststore": "export the certificates with `keytool -exportcert -rfc` (or `openssl pkcs12 "
    "-nokeys`) and give kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location, or "
    "kafka.ssl.ca.location",
    "keystore": "convert it with `keytool -importkeystore -deststoretype PKCS12` and give "
    "kafka.ssl.keystore.type=PKCS12, or use PEM: kafka.ssl.keystore.type=PEM",
}


def security_properties(given: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Take the JVM client's TLS and SASL properties out of `given` and translate them.

    Returns
    -------
    tuple of (dict, dict)
        The remaining properties, and librdkafka's properties for those that were taken out.

    Raises
    ------
    ValueError
        librdkafka cannot read a value, or properties contradict each other. The message names
        keys, never secrets.
    """
    rest = dict(given)
    config: dict[str, str] = {}
    jaas = rest.pop("sasl.jaas.config", None)
    if jaas is not None:
        config.update(_translate_sasl(jaas, rest))
    _check_unsecured_token(rest)
    _translate_truststore(rest, config)
    _translate_keystore(rest, config)
    if rest.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"  # as Java spells it
        del rest["ssl.endpoint.identification.algorithm"]
    return rest, config


# -- SASL


def _translate_sasl(text: str, rest: dict[str, str]) -> dict[str, str]:
    module, options = _jaas_entry(text)
    kind = _MODULES.get(module) or _MODULES.get(module.replace("kafkashaded.", "", 1))
    if kind is None:
        name = module.rpartition(".")[2]
        words = _OTHER_MODULES.get(name, "expected PlainLoginModule or ScramLoginModule")
        raise ValueError(f"option {_JAAS}: the login module {name} is not supported; {words}")
    for key in ("sasl.username", "sasl.password"):
        if key in rest:
            raise ValueError(f"options kafka.{key} and {_JAAS} are both set: set only one")
    mechanism = rest.pop("sasl.mechanism", "PLAIN" if kind == "PLAIN" else "").strip().upper()
    if not mechanism:
        raise ValueError(
            f"option kafka.sasl.mechanism is missing: {_JAAS} uses the ScramLoginModule, so set "
            "SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    if mechanism.partition("-")[0] != kind:
        raise ValueError(
            f"option {_JAAS}: its login module is for {kind}, but kafka.sasl.mechanism is "
            f"{mechanism}"
        )
    if options.get("tokenauth", "false").lower() == "true":
        raise ValueError(
            f"option {_JAAS}: librdkafka does not support delegation tokens (tokenauth)"
        )
    config = {"sasl.mechanism": mechanism}
    for key in ("username", "password"):
        if key not in options:
            raise ValueError(f"option {_JAAS}: the login module has no {key}")
        config[f"sasl.{key}"] = options[key]
    return config


# The fields from which librdkafka creates unsecured (unsigned) tokens.
_TOKEN_PARTS = ("principalClaimName", "principal", "scopeClaimName", "scope", "lifeSeconds")


def _check_unsecured_token(rest: dict[str, str]) -> None:
    """Check an unsecured token's fields: librdkafka's error would quote a wrong field."""
    key = "sasl.oauthbearer.config"
    if rest.get("sasl.oauthbearer.method", "default").strip().lower() != "default":
        return
    for number, part in enumerate(filter(None, rest.get(key, "").split(" ")), 1):
        name, _, value = part.partition("=")
        good = '"' not in value and (
            (name in _TOKEN_PARTS and value) or re.fullmatch("extension_.+", name)
        )
        if not good or (name == "lifeSeconds" and not re.fullmatch("0*[1-9][0-9]{0,8}", value)):
            raise ValueError(
                f"option kafka.{key}: part {number} is malformed; expected name=value pairs "
                f"without quotes, separated by spaces, with the names {', '.join(_TOKEN_PARTS)} "
                "(a whole number) and extension_NAME"
            )


# Java's tokenizer: words, quoted text with escapes, comments, and single characters.
_TOKENS = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<word>[\w.$\-]+)
      |"(?P<double>(?:[^"\\\n]|\\.)*)"
      |'(?P<single>(?:[^'\\\n]|\\.)*)'
      |(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


def _jaas_entry(text: str) -> tuple[str, dict[str, str]]:
    """Return the login module and the options in a client's JAAS configuration (one entry)."""
    next_token = _token_reader(text)
    module = next_token("the name of a login module", signs=False)
    if next_token("a flag", signs=False).lower() not in _FLAGS:
        raise _malformed(f"after the login module comes one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while (key := next_token('an option or ";"')) != ";":
        if key == "=" or next_token('"="') != "=":
            raise _malformed('options are written as name="value"')
        options[key] = next_token(f"the value of {key}", signs=False)
    if next_token("", last=True):
        raise _malformed("it has more than one entry, or text after the ;")
    return module, options


def _token_reader(text: str) -> Callable[..., str]:
    place = 0

    def next_token(wanted: str, *, signs: bool = True, last: bool = False) -> str:
        nonlocal place
        while place < len(text):
            match = _TOKENS.match(text, place)
            if match is None:  # do not quote the text: it may be a secret
                raise _malformed(
                    'it has a value in quotes that does not end, or a sign other than "=" and ";"'
                )
            place = match.end()
            kind = match.lastgroup
            if kind == "space":
                continue
            found = match.group(kind or 0)
            if kind == "sign" and not signs:
                raise _malformed(f"{wanted} is missing")
            return found if kind in ("word", "sign") else _unescaped(found)
        if last:
            return ""
        raise _malformed(f'{wanted} is missing: it ends with ";"')

    return next_token


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] in "01234567":
            return chr(int(escape, 8))
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", one, text, flags=re.DOTALL)


def _malformed(words: str) -> ValueError:
    return ValueError(
        f"option {_JAAS} is malformed: {words}. Expected: "
        '<login module> required username="..." password="...";'
    )


# -- TLS


def _translate_truststore(rest: dict[str, str], config: dict[str, str]) -> None:
    kind = _store_type(rest, "truststore", ("certificates",))
    location = rest.pop("ssl.truststore.location", None)
    certificates = rest.pop("ssl.truststore.certificates", None)
    password = rest.pop("ssl.truststore.password", None)
    if location is None and certificates is None:
        return
    if kind != "PEM":
        raise _only_jvm("truststore", kind)
    _refuse_password(password, "truststore")
    _refuse_both(location, certificates, "truststore", "certificates")
    _put(config, rest, "ssl.ca.location", location)
    _put(config, rest, "ssl.ca.pem", certificates)


def _translate_keystore(rest: dict[str, str], config: dict[str, str]) -> None:
    kind = _store_type(rest, "keystore", ("certificate.chain", "key"))
    location = rest.pop("ssl.keystore.location", None)
    chain = rest.pop("ssl.keystore.certificate.chain", None)
    key = rest.pop("ssl.keystore.key", None)
    password = rest.pop("ssl.keystore.password", None)
    if location is None and chain is None and key is None:
        return
    if kind == "PKCS12" and location is not None:
        config["ssl.keystore.location"] = location  # librdkafka reads these itself
        if password is not None:
            config["ssl.keystore.password"] = password
        return
    if kind != "PEM":
        raise _only_jvm("keystore", kind)
    _refuse_password(password, "keystore", "; the key's is kafka.ssl.key.password")
    _refuse_both(location, chain or key, "keystore", "certificate.chain and .key")
    if location is None and (chain is None or key is None):
        missing = "key" if key is None else "certificate.chain"
        raise ValueError(
            f"option kafka.ssl.keystore.{missing} is missing: certificate.chain and key need each "
            "other"
        )
    # One PEM file contains certificates and key; librdkafka skips the part that it does not need.
    _put(config, rest, "ssl.certificate.location", location)
    _put(config, rest, "ssl.key.location", location)
    _put(config, rest, "ssl.certificate.pem", chain)
    _put(config, rest, "ssl.key.pem", key)


def _store_type(rest: dict[str, str], store: str, texts: tuple[str, ...]) -> str | None:
    kind = rest.pop(f"ssl.{store}.type", None)
    if kind is None and any(f"ssl.{store}.{text}" in rest for text in texts):
        return "PEM"  # the only type that comes as text
    return kind if kind is None else kind.strip().upper()


def _only_jvm(store: str, kind: str | None) -> ValueError:
    if kind is None:
        said = f"without kafka.ssl.{store}.type it is a Java key store"
    else:
        said = f"a store of type {kind}"
    return ValueError(
        f"option kafka.ssl.{store}.location: {said}, which librdkafka cannot read: "
        f"{_TO_PEM[store]}"
    )


def _refuse_password(password: str | None, store: str, words: str = "") -> None:
    if password is not None:
        raise ValueError(
            f"option kafka.ssl.{store}.password: a store of type PEM has no password{words}"
        )


def _refuse_both(location: str | None, text: str | None, store: str, texts: str) -> None:
    if location is not None and text is not None:
        raise ValueError(
            f"options kafka.ssl.{store}.location and .{texts} are both set: set only one"
        )


def _put(config: dict[str, str], rest: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        return
    if key in rest:
        raise ValueError(
            f"option kafka.{key} and the JVM client's name for the same option are both set: "
            "set only one"
        )
    config[key] = value
