"""Files with client properties: .properties, TOML, and the user's profiles."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cykafka.cli.terminal.failures import UsageError
from cykafka.internal import did_you_mean

__all__ = ["profile_file", "read_file", "read_profile", "read_text", "resolve"]


def profile_file() -> Path:
    """Return ``cykafka/config.toml`` in ``$XDG_CONFIG_HOME``, or else in ``~/.config``."""
    # The XDG specification says to ignore relative paths.
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    base = folder if os.path.isabs(folder) else os.path.expanduser("~/.config")
    return Path(base, "cykafka", "config.toml")


def read_profile(name: str | None) -> dict[str, str]:
    """Return a profile's properties.

    Parameters
    ----------
    name : str or None
        The profile. None reads the profile ``default``, which may be missing.

    Raises
    ------
    UsageError
        The profile does not exist, or the file is not valid.
    """
    path = profile_file()
    # In another user's home os.path.exists returns False, but Path.exists raises.
    if not os.path.exists(path):
        if name is None:
            return {}
        raise UsageError(f"profile {name!r} does not exist: the file {path} is missing")
    profiles = _toml(path)
    for profile, table in profiles.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {profile} is not in a profile; write [default] above it")
    if name is None:
        return _flat(profiles.get("default", {}), f"{path}, [default]")
    if name not in profiles:
        hint = did_you_mean(name, profiles) or f"; it has {', '.join(profiles) or 'none'}"
        raise UsageError(f"{path} has no profile {name!r}{hint}")
    return _flat(profiles[name], f"{path}, [{name}]")


def read_file(path: Path) -> dict[str, str]:
    """Return a file's properties: TOML if its name ends in .toml, else lines ``key=value``.

    Raises
    ------
    UsageError
        The file is not readable or not valid.
    """
    if path.suffix == ".toml":
        return _flat(_toml(path), str(path))
    properties = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, separator, value = text.partition("=")
        if not separator or not key.strip():  # it may be a secret: do not show it
            raise UsageError(f"{path}, line {number}: expected KEY=VALUE")
        properties[key.strip()] = value.strip()
    return properties


def resolve(key: str, value: str) -> str:
    """Return the value that a text refers to.

    ``@FILE`` means a file's content, without the final newline. ``env:NAME`` means an environment
    variable. ``@@`` at the beginning stands for one ``@``.

    Raises
    ------
    UsageError
        The file is not readable, or the variable is missing.
    """
    if value.startswith("@@"):
        return value[1:]
    if value.startswith("@"):
        path = Path(os.path.expanduser(value[1:]))
        try:
            return path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(
                f"{key}: cannot read the file after @: {why}; write @@ if the value begins with @"
            ) from None
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in os.environ:
            raise UsageError(f"{key}: the environment has no variable {name}")
        return os.environ[name]
    return value


def read_text(path: Path) -> str:
    """Return the text of a file that the user names.

    Raises
    ------
    UsageError
        The file is not readable, or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows editors write a BOM
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"cannot read {path}: it is not UTF-8") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def _flat(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """Join the names of nested tables, as which TOML reads ``security.protocol = ...``."""
    return {key: resolve(key, value) for key, value in _leaves(table, "", where)}


def _leaves(table: Mapping[str, Any], prefix: str, where: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{key}.", where)
        elif isinstance(value, bool):
            yield key, "true" if value else "false"
        elif isinstance(value, str | int | float):
            yield key, str(value)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield key, ",".join(value)
        else:
            raise UsageError(f"{where}: {key} must be a string, a number, a boolean or a list")
