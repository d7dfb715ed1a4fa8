"""Checks administrative arguments. Errors name the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from cykafka._core.common.partition import TopicPartition

_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


class WrongTypeError(TypeError, ValueError):
    """A TypeError that is also a ValueError, which confluent_kafka raises in some cases."""


def expect(value: object, kind: type[_T], argument: str) -> _T:
    """Return the value. Raise if it is not an instance of this class."""
    if not isinstance(value, kind):
        raise WrongTypeError(f"{argument}: expected a {kind.__name__}, got {type(value).__name__}")
    return value


def expect_int(value: object, argument: str, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
    """Return the value as an int. Raise if it is not an integer within bounds."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{argument}: expected an int, got {type(value).__name__}")
    number = operator.index(value)  # also converts numpy's integers
    if not low <= number <= high:
        raise ValueError(f"{argument}: expected {low} to {high}, got {number}")
    return number


def expect_list(values: object, kind: type[_T], argument: str, *, empty: bool = False) -> list[_T]:
    """Copy a list or tuple. Raise if an element is not an instance of this class."""
    if not isinstance(values, (list, tuple)):
        raise WrongTypeError(
            f"{argument}: expected a list of {kind.__name__}, got {type(values).__name__}"
        )
    if not values and not empty:
        raise ValueError(f"{argument}: expected at least one {kind.__name__}, got an empty list")
    for value in values:
        if not isinstance(value, kind):
            raise WrongTypeError(
                f"{argument}: expected a list of {kind.__name__}, "
                f"found a {type(value).__name__} in it"
            )
    return list(values)


def expect_names(
    values: object, argument: str, *, empty: bool = False, unnamed: bool = False
) -> list[str]:
    """Copy a list of names. Raise if a name is empty, unless `unnamed`."""
    names = expect_list(values, str, argument, empty=empty)
    if not unnamed and "" in names:
        raise ValueError(f"{argument}: the list has an empty name")
    return names


def check_partition(partition: TopicPartition, argument: str) -> None:
    """Raise if it lacks a topic or has a negative partition."""
    if not partition.topic:
        raise ValueError(f"{argument}: {partition} has no topic")
    if partition.partition < 0:
        raise ValueError(f"{argument}: {partition} has a negative partition")


def refuse_duplicates(values: Iterable[object], argument: str) -> None:
    """Raise if two elements are equal."""
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{argument}: duplicate {value!r}")
        seen.add(value)


def member_of(value: object, enumeration: type[_E], argument: str) -> _E:
    """Return an enumeration member from a member, a name in any case or a number."""
    if isinstance(value, enumeration):
        return value
    if isinstance(value, str):
        try:
            return enumeration[value.upper()]
        except KeyError:
            names = ", ".join(enumeration.__members__)
            raise ValueError(
                f"{argument}: unknown {enumeration.__name__} {value!r}; it is one of {names}"
            ) from None
    if isinstance(value, int):
        try:
            return enumeration(value)
        except ValueError:
            raise ValueError(f"{argument}: {value} is not a {enumeration.__name__}") from None
    raise TypeError(f"{argument}: expected a {enumeration.__name__}, got {type(value).__name__}")


def members_of(
    values: Iterable[object] | None, enumeration: type[_E], argument: str
) -> list[_E] | None:
    """Return a list of members; None for an empty list."""
    if not values:
        return None
    return [member_of(value, enumeration, argument) for value in values]
