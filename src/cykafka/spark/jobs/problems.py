"""Error messages: mistakes in a configuration, and short texts for Spark's errors."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "ConfigError",
    "Problem",
    "Stopped",
    "explain_error",
    "explain_spark_error",
    "wrong_value",
]

_PYTHON = re.compile(
    r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)): (?P<words>.+?)$", re.MULTILINE
)
_JAVA = re.compile(
    r"(?:Caused by: |^:? ?)(?P<kind>(?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)?): "
    r"(?P<words>[^\n]+)",
    re.MULTILINE,
)
_UNINFORMATIVE = ("SparkException", "StreamingQueryException", "Py4JJavaError", "PythonException",
                  "PySparkRuntimeError", "AnalysisException")  # fmt: skip
_MODULES = ("pyspark", "pyarrow", "py4j", "prometheus_client")
# A class or a method is missing, or differs from the one that the caller was compiled against.
_LINKAGE = ("NoSuchMethodError", "NoSuchFieldError", "NoClassDefFoundError", "AbstractMethodError",
            "IncompatibleClassChangeError")  # fmt: skip
_OF_SCHEMAS = (
    "fastavro",
    "ptars",
    "jsonschema_rs",
    "urllib3",
    "numpy",
    "google",
    "google.protobuf",
)
# What Spark writes before the words of raise_error().
_RAISED = re.compile(r"^\[USER_RAISED_EXCEPTION\]\s*")
# Not a number of a partition, or of an element of an array.
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]*\]\s*")
_NOISE = re.compile(
    r"\s*(?:SQLSTATE: \w+|\n\s*at .*|Traceback \(most recent call last\):.*"
    r"|=== Streaming Query ===.*)|^Query \[id = \S+, runId = \S+\] terminated with exception: ",
    re.DOTALL,
)


class Problem(NamedTuple):
    """A mistake in a configuration: the keys that it concerns, and a sentence that names them."""

    keys: tuple[str, ...]
    text: str


class ConfigError(Exception):
    """A job cannot run with its configuration.

    Parameters
    ----------
    problems : str
        All mistakes, one sentence each.
    log_format : str, optional
        The configuration's key ``log_format``, if it could be read.
    """

    def __init__(self, *problems: str, log_format: str | None = None) -> None:
        super().__init__("\n".join(problems))
        self.problems = [*problems]
        self.log_format = log_format


class Stopped(Exception):
    """A job was stopped before it was complete."""


def wrong_value(key: str, value: object, words: str) -> ConfigError:
    """Return the error for one key with a wrong value."""
    return ConfigError(f'key "{key}" = {value!r}: {words}')


def explain_error(error: BaseException) -> str:
    """Return one paragraph that names an error's cause, without Spark's wrapping."""
    words = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _MODULES:
        return f"{words}: pip install 'cykafka[spark]'"
    if isinstance(error, ModuleNotFoundError) and error.name in _OF_SCHEMAS:
        return f"No module named {error.name!r}: pip install 'cykafka[schemas]'"
    # In the traceback that Spark quotes, a Python worker raised the last error.
    for pattern in (_PYTHON, _JAVA):
        found = [(m["kind"].rpartition(".")[2], m["words"]) for m in pattern.finditer(words)]
        causes = [
            f"{_RAISED.sub('', text)} ({kind})"
            for kind, text in found
            if kind not in _UNINFORMATIVE
        ]
        if causes:
            advice = "; a jar of spark.jars or spark.jars.packages is for another version of Spark"
            return _one_line(causes[-1]) + (advice if found[-1][0] in _LINKAGE else "")
    text = _one_line(_NOISE.sub("", _CLASS.sub("", words)))
    return text or type(error).__name__


def _one_line(words: str) -> str:
    return " ".join(words.split())


def explain_spark_error(error: BaseException) -> str:
    """Return Spark's error about a query or a condition, without plans and error codes."""
    words = _CLASS.sub("", str(error)).split("== SQL")[0].split(";\n")[0]
    words = re.sub(r"\s*SQLSTATE: \w+;?", "", words)
    return _one_line(words)
