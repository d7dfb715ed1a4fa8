"""Reads a job's configuration from a TOML file and the command line; writes it as TOML.

The command line takes precedence. `load` finds all mistakes at once, before Spark starts. Each
message names the key, the value (unless it is a secret) and what was expected. `to_toml` prints a
configuration as such a file.
"""

from __future__ import annotations

import copy
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from pydantic import ValidationError, create_model
from pydantic.fields import FieldInfo

from cykafka.internal import did_you_mean
from cykafka.schemas.model.document import SchemaSource
from cykafka.spark.clients.properties import is_secret
from cykafka.spark.jobs.config import checks
from cykafka.spark.jobs.config.fields import flatten, has_variable
from cykafka.spark.jobs.config.models import HIDDEN, TABLES, JobConfig
from cykafka.spark.jobs.config.value_schema import Schema
from cykafka.spark.jobs.problems import ConfigError, Problem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["help_of", "load", "to_toml"]

_CLIENT = ("bootstrap", "security.", "sasl", "ssl")
# The words of errors, by pydantic's types of errors.
_EXPECTED = {
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "greater_than": "expected a number greater than {gt:g}",
    "greater_than_equal": "expected a whole number of at least {ge}",
    "less_than": "expected a number less than {lt:g}",
    "less_than_equal": "expected a whole number of at most {le}",
    "list_type": 'expected a list, such as ["a", "b"] or "a,b"',
    "literal_error": "expected {expected}",
    "string_too_short": "expected a text that is not empty",
    "string_type": "expected a text",
    "too_short": 'expected a list of at least one, such as ["a", "b"] or "a,b"',
}


def load(
    job: type[JobConfig],
    file: str | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> JobConfig:
    """Read and check a job's configuration.

    Parameters
    ----------
    job : type
        The model for the job's configuration.
    file : str, optional
        The name of a TOML file.
    given : mapping, optional
        The command line, which takes precedence: values by key, or by ``table.option``.
    environment : mapping, optional
        The variables for ``${NAME}`` and ``env:NAME`` (default: the process environment).

    Raises
    ------
    ConfigError
        Contains all mistakes.
    """
    variables = os.environ if environment is None else environment
    try:
        document = _merged({} if file is None else _read(file), given or {})
        config, problems = _validated(job, copy.deepcopy(document), variables)
    except RecursionError:
        raise ConfigError(f"the configuration {file} is nested too deeply") from None
    config._written = document
    reported = {key for problem in problems for key in problem.keys}
    problems += [problem for problem in checks.check(config) if reported.isdisjoint(problem.keys)]
    if problems:
        texts = [config.redact(problem.text) for problem in problems]
        raise ConfigError(*texts, log_format=config.log_format)
    return config


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"the configuration {file} cannot be read: {reason}") from None
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        raise ConfigError(f"the configuration {file} is not TOML: {error}") from None


def _merged(document: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the keys in the file and on the command line, with options in their tables."""
    merged: dict[str, Any] = {}
    for key, value in (*document.items(), *given.items()):
        table, _, option = key.partition(".")
        if table not in TABLES or not (option or isinstance(value, Mapping)):
            merged[key] = value
            continue
        options = flatten({option: value} if option else value)
        # The full names of these options begin with it, too.
        prefix = {"spark": "spark.", "registry": "schema.registry."}.get(table, "")
        options = {name.removeprefix(prefix): options[name] for name in options}
        if isinstance(before := merged.get(table, {}), Mapping):  # else it is a mistake
            merged[table] = {**before, **options}
    return merged


def _validated(
    job: type[JobConfig], document: dict[str, Any], variables: Mapping[str, str]
) -> tuple[JobConfig, list[Problem]]:
    """Return the configuration, and the mistakes in single keys."""
    try:
        return job.model_validate(document, context=variables), []
    except ValidationError as caught:
        errors = caught.errors()
    problems = [_problem(job, error, document) for error in errors]
    # The other keys are still checked against one another.
    for error in errors:
        _remove(document, error["loc"])
    optional: Any = {
        name: (Any, None) for name, key in job.model_fields.items() if key.is_required()
    }
    lenient = create_model(job.__name__, __base__=job, **optional)
    return lenient.model_validate(document, context=variables), problems


def _remove(document: dict[str, Any], place: tuple[int | str, ...]) -> None:
    key, *option = place
    if key in TABLES and option and isinstance(document[str(key)], dict):
        document[str(key)].pop(option[0], None)
    else:
        document.pop(str(key), None)
    for format_key, schema in (("decode", "schema"), ("encode", "encode_schema")):
        if key == format_key:  # it says how to read the schema
            document.pop(schema, None)


def _problem(job: type[JobConfig], error: ErrorDetails, document: Mapping[str, Any]) -> Problem:
    """A validation error as a sentence."""
    name, *rest = error["loc"]
    key = f"{name}.{rest.pop(0)}" if name in TABLES and rest else str(name)
    known = {field.alias or name: field for name, field in job.model_fields.items()}
    if error["type"] == "missing":
        return Problem((key,), f'key "{key}" is missing: {help_of(known[key])}')
    if error["type"] == "extra_forbidden":
        return Problem((key,), f'key "{key}": {_unknown(job, key, known)}')
    expected = _EXPECTED.get(error["type"])
    words = expected.format(**error.get("ctx", {})) if expected else error["msg"]
    words = words.removeprefix("Value error, ")
    if key == "job":
        words = f'this file is for another job than "{job.model_fields["job"].default}"'
    elif error["type"] == "literal_error" and isinstance(error["input"], str):
        words += did_you_mean(error["input"], re.findall("'(.+?)'", error["ctx"]["expected"]))
    # A table or the variables in a value may contain secrets.
    written = document[str(name)]
    if name in TABLES and isinstance(written, dict):
        written = written.get(key.partition(".")[2])
    value = written if has_variable(written) else error["input"]
    if (
        is_secret(key)
        or key in ("schema", "encode_schema")
        or key in TABLES
        or isinstance(value, dict)
    ):
        return Problem((key,), f'key "{key}": {words}')
    item = "".join(f"[{part}]" for part in rest)
    return Problem((key,), f'key "{key}{item}" = {value!r}: {words}')


def _unknown(job: type[JobConfig], key: str, known: Iterable[str]) -> str:
    name = job.model_fields["job"].default
    if key in TABLES:
        have = ", ".join(f"[{table}]" for table in TABLES if table in known)
        return f"job {name} has no table [{key}], but {have}"
    hint = did_you_mean(key, known)
    if key.startswith(_CLIENT):
        hint = "; properties of the clients belong into the table [kafka]"
    return f"job {name} has no such key{hint}"


def help_of(field: FieldInfo) -> str:
    """Return a key's description in one line."""
    return " ".join((field.description or "").split())


def to_toml(config: JobConfig) -> str:
    """Return the configuration as TOML, with defaults, hidden secrets and unfilled variables."""
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
