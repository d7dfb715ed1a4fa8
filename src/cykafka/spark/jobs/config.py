"""A job's configuration: a TOML file, what the command line says instead, whether it makes sense.

All mistakes are found at once, before Spark starts. Each names its key, the value (unless it is a
secret) and what was expected.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cykafka.spark.jobs import checks
from cykafka.spark.jobs.keys import TABLES, Job, near_miss
from cykafka.spark.jobs.settings import HIDDEN, Config, ConfigError, keys_of
from cykafka.spark.redaction import is_secret

__all__ = ["Config", "ConfigError", "load"]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(r"\$(\$?)\{(" + _NAME + r")\}")
_WHOLE = re.compile(r"env:(" + _NAME + r")")
_NAMED = re.compile(r'keys? "([\w.-]+)"')
_SHORTEST_SECRET = 4


def load(
    job: Job,
    file: str | None = None,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read and check a job's configuration.

    Parameters
    ----------
    job : Job
    file : str, optional
        A TOML file.
    given : mapping, optional
        What the command line says, which wins: values by the names of keys, or by a table's
        name, a dot and an option's.
    environment : mapping, optional
        What ``${NAME}`` and ``env:NAME`` mean (default: the process's environment).

    Raises
    ------
    ConfigError
        With everything that is wrong.
    """
    problems: list[str] = []
    entries = _near_keys({**_read(file, job, problems), **(given or {})}, job, problems)
    if file is not None and problems and not entries:
        raise ConfigError(problems)  # a file that cannot be read: nothing else is worth telling
    environment = os.environ if environment is None else environment
    filled = {}
    for name, value in entries.items():
        try:
            filled[name] = _filled(value, environment)
        except ValueError as error:
            problems.append(f'key "{name}": {error}')
    config = Config(job, {key.name: key.default for key in keys_of(job)})
    config.secrets = frozenset(
        value
        for name, value in filled.items()
        if is_secret(name) and isinstance(value, str) and len(value) >= _SHORTEST_SECRET
    ) | _jaas_passwords(filled)
    config.written = {
        name: value for name, value in entries.items() if filled.get(name, value) != value
    }
    _take(config, filled, problems)
    # What is not there since it could not be read is not missing, too.
    told = {name for problem in problems for name in _NAMED.findall(problem)}
    problems += [
        config.redact(problem)
        for problem in checks.check(config)
        if not told.intersection(_NAMED.findall(problem))
    ]
    if problems:
        raise ConfigError(problems)
    return config


def _read(file: str | None, job: Job, problems: list[str]) -> dict[str, Any]:
    """The entries of a file by their full names."""
    if file is None:
        return {}
    try:
        document = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        problems.append(f"the configuration {file} cannot be read: {reason}")
        return {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"the configuration {file} is no TOML: {error}")
        return {}
    of = document.pop("job", job.name)
    if of != job.name:
        problems.append(f'key "job" = {of!r}: this file is for another job than "{job.name}"')
    entries: dict[str, Any] = {}
    for name, value in document.items():
        if name in TABLES and isinstance(value, dict):
            for full, option in _flat(value, f"{name}."):
                # Spark's own names begin with the table's.
                double = full.startswith("spark.spark.")
                entries[full.removeprefix("spark.") if double else full] = option
        else:
            entries[name] = value
    return entries


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    # In TOML `bootstrap.servers = ...` is a table in a table.
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _near_keys(entries: dict[str, Any], job: Job, problems: list[str]) -> dict[str, Any]:
    """The entries this job knows; the others are problems."""
    known = {key.name for key in keys_of(job)}
    taken = {}
    for name, value in entries.items():
        table, dot, rest = name.partition(".")
        if name in known or (dot and rest and table in job.tables):
            taken[name] = value
        elif table in TABLES and (dot or name in TABLES):
            have = ", ".join(f"[{table}]" for table in job.tables)
            told = f"is a table, not a value (job {job.name} has {have})"
            if table not in job.tables:
                told = f"job {job.name} has no table [{table}], but {have}"
            problems.append(f'key "{name}": {told}')
        else:
            candidates = [*known, "job", *(f"{t}.bootstrap.servers" for t in job.tables[:1])]
            hint = near_miss(name, candidates)
            if name.startswith(("bootstrap", "security.", "sasl", "ssl")):
                hint = "; properties of the clients belong into the table [kafka]"
            problems.append(f'key "{name}": job {job.name} has no such key{hint}')
    return taken


def _filled(value: Any, environment: Mapping[str, str]) -> Any:
    """`value` with what it takes from the environment."""
    if isinstance(value, list):
        return [_filled(part, environment) for part in value]
    if not isinstance(value, str):
        return value

    def look(name: str) -> str:
        if name not in environment:
            raise ValueError(f"the environment has no variable {name}")
        return environment[name]

    whole = _WHOLE.fullmatch(value)
    if whole:
        return look(whole[1])
    # $${NAME} is for those who mean ${NAME}.
    return _VARIABLE.sub(lambda m: f"${{{m[2]}}}" if m[1] else look(m[2]), value)


def _jaas_passwords(entries: Mapping[str, Any]) -> frozenset[str]:
    # The password alone may be in an error, too.
    found: set[str] = set()
    for name, value in entries.items():
        if "jaas" in name.lower() and isinstance(value, str):
            quoted = re.findall(r'(?i)(?:password|secret)\w*\s*=\s*(?:"([^"]*)"|([^\s;]+))', value)
            found.update(word for pair in quoted for word in pair if len(word) >= _SHORTEST_SECRET)
    return frozenset(found)


def _take(config: Config, entries: Mapping[str, Any], problems: list[str]) -> None:
    keys = {key.name: key for key in keys_of(config.job)}
    for name, value in entries.items():
        key = keys.get(name)
        table, _, option = name.partition(".")
        shown = HIDDEN if is_secret(name) else repr(value)
        try:
            if key is not None:
                config.values[name] = key.read(value)
            else:
                config.tables.setdefault(table, {})[option] = _option(value)
        except ValueError as error:
            problems.append(f'key "{name}" = {shown}: {error}')
    for key in keys.values():
        if key.required and key.name not in entries:
            problems.append(f'key "{key.name}" is missing: {key.help}')


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError("expected a text, a number, true or false")
