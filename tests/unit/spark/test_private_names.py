"""The private names of PySpark and other libraries that cykafka.spark and cykafka.schemas use.

PySpark has no public way to the JVM's objects. All these names exist in PySpark 4.0 to 4.2, and a
session of Spark Connect has none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import cykafka

SOURCES = [Path(cykafka.__file__).parent / name for name in ("spark", "schemas")]
PRIVATE = {
    "_jvm": "Hadoop's file systems, Spark's log of files, Iceberg's library",
    "_gateway": "arrays for Java methods; whether this process has a JVM",
    "_jsparkSession": "the session of Hadoop's configuration and of Spark's log of files",
    "_jsc": "whether the cluster ended the application",
    "_jdf": "Iceberg: the plan whose files it commits",
    "_ensure_initialized": "a JVM in a session of its own, which Ctrl-C does not reach",
    "_parse_datatype_string": "a schema in DDL as a type, before there is a query",
    "_read_py": "fastavro: its C reader overflows the stack if values nest deeply",
}
# The documented methods of named tuples.
NAMED_TUPLE = {"_asdict", "_fields", "_replace"}


def private_names(tree: ast.AST) -> Iterator[str]:
    """Private names that a module reads from something other than its own objects."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(module=str(module), names=names) if "cykafka" not in module:
                yield from module.split(".")
                yield from (item.name for item in names)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                yield name


def own_names(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to its classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name


def test_private_names_of_other_libraries_are_listed() -> None:
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for folder in SOURCES
        for path in folder.rglob("*.py")
    ]
    found = {name for tree in trees for name in private_names(tree) if re.match("_[a-z]", name)}
    own = {name for tree in trees for name in own_names(tree)} - PRIVATE.keys()

    assert found - own - NAMED_TUPLE == PRIVATE.keys()
