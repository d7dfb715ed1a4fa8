"""Prints a job's configuration as TOML."""

from __future__ import annotations

import tomlkit
from pydantic.fields import FieldInfo

from cykafka.spark.jobs.config import HIDDEN, TABLES, JobConfig
from cykafka.spark.jobs.schemas.document import SchemaSource
from cykafka.spark.jobs.values import Schema
from cykafka.spark.jobs.variables import has_variable
from cykafka.spark.redaction import is_secret

__all__ = ["help_of", "to_toml"]


def help_of(field: FieldInfo) -> str:
    """The description of a key, in one line."""
    return " ".join((field.description or "").split())


def to_toml(config: JobConfig) -> str:
    """The configuration as TOML: defaults included, secrets hidden, variables unfilled."""
    document, tables = tomlkit.document(), tomlkit.document()
    for name, field in type(config).model_fields.items():
        key = field.alias or name
        value, written = getattr(config, name), config.written.get(key)
        if name in TABLES:
            table = tomlkit.table()
            table.comment(help_of(field))
            for option, text in value.items():
                raw = (written or {}).get(option)
                shown = raw if has_variable(raw) else text
                table.add(option, HIDDEN if is_secret(f"{name}.{option}") else shown)
            tables.add(name, table)
        elif value is None:
            document.add(tomlkit.comment(f"{key}: {help_of(field)}"))
        elif isinstance(written, dict):
            tables.add(key, tomlkit.item(written))
        else:
            is_raw = isinstance(value, Schema | SchemaSource) or has_variable(written)
            document.add(key, written if is_raw else value)
    return f"{document.as_string()}\n{tables.as_string()}"
