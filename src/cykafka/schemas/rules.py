"""Rules of a schema, such as field-level encryption."""

from __future__ import annotations

from cykafka.schemas.document import UnfitError
from cykafka.schemas.schema import Schema

__all__ = ["check_rules"]


def check_rules(schema: Schema) -> None:
    """Check that a schema has no rules, because cykafka applies none.

    The values of such a schema may be encrypted, or need a conversion. Disabled rules have no
    effect.

    Parameters
    ----------
    schema : Schema

    Raises
    ------
    UnfitError
        The schema has rules. The message names each one and its type.
    """
    rules = [
        rule
        for kind in (schema.rule_set or {}).values()
        if isinstance(kind, list | tuple)
        for rule in kind
        if not rule.get("disabled")
    ]
    if rules:
        names = ", ".join(f"{rule.get('name')} ({rule.get('type')})" for rule in rules)
        raise UnfitError(
            f"the schema has rules, which cykafka does not apply: {names}. Use a client that "
            "applies them, or disable them in the registry"
        )
