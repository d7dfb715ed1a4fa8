"""Mistakes in a configuration."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ConfigError", "Problem", "wrong_value"]


class Problem(NamedTuple):
    """A mistake in a configuration: the keys that it concerns, and a sentence that names them."""

    keys: tuple[str, ...]
    text: str


class ConfigError(Exception):
    """A job cannot run with its configuration.

    Parameters
    ----------
    problems : list of str
        All mistakes, a sentence each.
    log_format : str, optional
        The key ``log_format`` of the configuration, if it could be read.
    """

    def __init__(self, problems: list[str], log_format: str | None = None) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.log_format = log_format


def wrong_value(key: str, value: object, words: str) -> ConfigError:
    """The error for one key with a wrong value."""
    return ConfigError([f'key "{key}" = {value!r}: {words}'])
