"""A job's checked configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cykafka.spark.jobs.keys import COMMON, TABLES, Job, Key
from cykafka.spark.redaction import is_secret

__all__ = ["HIDDEN", "Config", "ConfigError", "keys_of"]

HIDDEN = "********"


class ConfigError(Exception):
    """A configuration a job cannot run with.

    Parameters
    ----------
    problems : list of str
        All that is wrong with it, a sentence each.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass
class Config:
    """A job's checked configuration.

    ``config["topics"]`` is a key's value; `tables` has the options for the clients and for Spark;
    `written` what was written where the value is another one.
    """

    job: Job
    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    written: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def source_options(self) -> dict[str, str]:
        """The options of the data source, the topics among them."""
        options = self._options("source")
        if self.values.get("topics"):
            options["subscribe"] = ",".join(self["topics"])
        elif self.values.get("topic_pattern"):
            options["subscribePattern"] = self["topic_pattern"]
        return options

    def sink_options(self) -> dict[str, str]:
        """The options of the sink."""
        return self._options("sink")

    def spark_options(self) -> dict[str, str]:
        """Spark's own configuration, by its full names."""
        return {f"spark.{name}": value for name, value in self.tables.get("spark", {}).items()}

    def _options(self, table: str) -> dict[str, str]:
        common = {f"kafka.{name}": value for name, value in self.tables.get("kafka", {}).items()}
        return {**common, **self.tables.get(table, {})}

    def redact(self, words: str) -> str:
        """`words` without the secrets of this configuration."""
        # The longest first: one secret may be part of another.
        for secret in sorted(self.secrets, key=len, reverse=True):
            words = words.replace(secret, HIDDEN)
        return words

    def toml(self) -> str:
        """The configuration as TOML, defaults included, secrets hidden."""
        lines = [f'job = "{self.job.name}"']
        for key in keys_of(self.job):
            value = self.written.get(key.name, self.values[key.name])
            if value is None:
                lines.append(f"# {key.name}: {key.help}")
            else:
                lines.append(f"{key.name} = {_toml(value)}")
        for table in self.job.tables:
            lines += ["", f"[{table}] # {TABLES[table]}"]
            for name, value in self.tables.get(table, {}).items():
                full = f"{table}.{name}"
                shown = HIDDEN if is_secret(full) else self.written.get(full, value)
                lines.append(f'"{name}" = {_toml(shown)}')
        return "\n".join(lines) + "\n"


def keys_of(job: Job) -> tuple[Key, ...]:
    """The keys of a job: its own, and those of all jobs."""
    return (*job.keys, *COMMON)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {_toml(part)}' for name, part in value.items()) + "}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
