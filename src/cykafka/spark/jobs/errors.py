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
_CLASS = re.compile(r"\[[A-Z0-9_.]+\]\s*")
_NOISE = re.compile(
    r"\s*(?:SQLSTATE: \w+|\n\s*at .*|Traceback \(most recent call last\):.*)", re.DOTALL
)


def explained(error: BaseException) -> str:
    """One paragraph that names the cause of an error, without Spark's wrapping."""
    words = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in ("pyspark", "pyarrow", "py4j"):
        return f"{words}: pip install 'cykafka[spark]'"
    # In the traceback that Spark quotes, the last error is the one that a Python worker raised.
    python = [
        match
        for match in _PYTHON.finditer(words)
        if match["kind"].rpartition(".")[2] not in _UNINFORMATIVE
    ]
    if python:
        kind, told = python[-1]["kind"].rpartition(".")[2], python[-1]["words"]
        return _one_line(f"{told} ({kind})")
    java = [m for m in _JAVA.finditer(words) if m["kind"].rpartition(".")[2] not in _UNINFORMATIVE]
    if java:
        return _one_line(f"{java[-1]['words']} ({java[-1]['kind'].rpartition('.')[2]})")
    told = _one_line(_CLASS.sub("", _NOISE.sub("", words)))
    return told or type(error).__name__


def _one_line(words: str) -> str:
    return " ".join(words.split())


def told_by_spark(error: BaseException) -> str:
    """Spark's error about a query or a condition, without plans and error codes."""
    words = _CLASS.sub("", str(error)).split("== SQL")[0].split(";\n")[0]
    words = re.sub(r"\s*SQLSTATE: \w+;?", "", words)
    return _one_line(words)
