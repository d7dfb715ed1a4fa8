"""Rules of a schema, such as field-level encryption."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cykafka.schemas.model.document import UnfitError

__all__ = ["READING", "WRITING", "check_rules"]

# The modes of rules that reading and writing values would need.
READING = ("READ", "WRITEREAD", "UPGRADE", "DOWNGRADE", "UPDOWN")
WRITING = ("WRITE", "WRITEREAD")


def check_rules(schema: Any, modes: Collection[str] | None = None) -> None:
    """Check that a schema has no rules, because cykafka applies none.

    The values of such a schema may be encrypted, or need a conversion. Disabled rules have no
    effect.

    Parameters
    ----------
    schema : Schema
        Also one of confluent_kafka.
    modes : collection of str, optional
        Only rules with these modes, such as ``READ``, or without a mode count; by default all.

    Raises
    ------
    UnfitError
        The schema has rules. The message names each one and its type.
    """
    given = schema.rule_set
    if given is None:
        return
    given = given if isinstance(given, Mapping) else given.to_dict()
    if given.get("enableAt") not in (None, "ALL", "CLIENT"):
        return
    rules = [
        rule
        for kind in given.values()
        if isinstance(kind, list | tuple)
        for rule in kind
        if not rule.get("disabled") and (modes is None or _mode(rule) in (*modes, None))
    ]
    if rules:
        names = ", ".join(f"{rule.get('name')} ({rule.get('type')})" for rule in rules)
        raise UnfitError(
            f"the schema has rules, which cykafka does not apply: {names}. Use a client that "
            "applies them, or disable them in the registry"
        )


def _mode(rule: Mapping[str, Any]) -> Any:
    mode = rule.get("mode")
    return getattr(mode, "value", mode)  # confluent_kafka has an enumeration
