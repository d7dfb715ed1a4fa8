"""Short texts of Spark's errors."""

from __future__ import annotations

import re

__all__ = ["explained", "told_by_spark"]


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
# A class or a method is missing, or has another form than when the caller was compiled.
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
_CLASS = re.compile(r"\[[A-Z0-9_.]+\]\s*")
_NOISE = re.compile(
    r"\s*(?:SQLSTATE: \w+|\n\s*at .*|Traceback \(most recent call last\):.*"
    r"|=== Streaming Query ===.*)|^Query \[id = \S+, runId = \S+\] terminated with exception: ",
    re.DOTALL,
)


def explained(error: BaseException) -> str:
    """One paragraph that names the cause of an error, without Spark's wrapping."""
    words = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _MODULES:
        return f"{words}: pip install 'cykafka[spark]'"
    if isinstance(error, ModuleNotFoundError) and error.name in _OF_SCHEMAS:
        return f"{words}: pip install 'cykafka[spark-schemas]'"
    # In the traceback that Spark quotes, the last error is the one that a Python worker raised.
    for pattern in (_PYTHON, _JAVA):
        found = [(m["kind"].rpartition(".")[2], m["words"]) for m in pattern.finditer(words)]
        causes = [f"{told} ({kind})" for kind, told in found if kind not in _UNINFORMATIVE]
        if causes:
            advice = "; a jar of spark.jars or spark.jars.packages is for another version of Spark"
            return _one_line(causes[-1]) + (advice if found[-1][0] in _LINKAGE else "")
    told = _one_line(_NOISE.sub("", _CLASS.sub("", words)))
    return told or type(error).__name__


def _one_line(words: str) -> str:
    return " ".join(words.split())


def told_by_spark(error: BaseException) -> str:
    """Spark's error about a query or a condition, without plans and error codes."""
    words = _CLASS.sub("", str(error)).split("== SQL")[0].split(";\n")[0]
    words = re.sub(r"\s*SQLSTATE: \w+;?", "", words)
    return _one_line(words)
