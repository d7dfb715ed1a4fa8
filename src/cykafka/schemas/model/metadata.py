"""A schema's metadata and rules, with confluent_kafka.schema_registry's names.

Each class is the registry's JSON, a dict, whose entries are also attributes. So it keeps the
entries that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeVar

__all__ = [
    "Metadata",
    "MetadataProperties",
    "MetadataTags",
    "Rule",
    "RuleKind",
    "RuleMode",
    "RuleParams",
    "RuleSet",
    "json_of",
    "plain",
]


class RuleKind(StrEnum):
    """Whether a rule checks a value or changes it."""

    CONDITION = "CONDITION"
    TRANSFORM = "TRANSFORM"


class RuleMode(StrEnum):
    """When a rule applies."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    READ = "READ"
    WRITE = "WRITE"
    WRITEREAD = "WRITEREAD"


def _entry(name: str) -> Any:
    """Return the attribute for an entry. Without the entry it is None."""

    def get(self: dict[str, Any]) -> Any:
        return self.get(name)

    def put(self: dict[str, Any], value: Any) -> None:
        if value is None:
            self.pop(name, None)
        else:
            self[name] = value

    return property(get, put)


def _entries(name: str) -> Any:
    """Return the attribute for an entry with a list. Without the entry it is an empty list."""

    def get(self: dict[str, Any]) -> Any:
        found = self.get(name)
        return [] if found is None else found

    return property(get, _entry(name).fset)


class _Json(dict[str, Any]):
    # How to make an entry's value from its JSON.
    _made: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def _fill(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            made = self._made.get(name)
            self[name] = value if made is None or value is None else made(value)

    def _fill_given(self, **given: Any) -> None:
        self._fill({name: value for name, value in given.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        """Return the registry's JSON as plain dicts, lists and texts."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Return the object for the registry's JSON."""
        made = cls.__new__(cls)
        made._fill(src_dict)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}.from_dict({self.to_dict()!r})"


_Kind = TypeVar("_Kind", bound=_Json)


def plain(value: Any) -> Any:
    """Return JSON without classes."""
    if isinstance(value, Mapping):
        return {name: plain(of) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value


def json_of(kind: type[_Kind], name: str, value: Any) -> _Kind | None:
    """Return an argument as one of the classes. None stays None.

    Parameters
    ----------
    kind : type
        The class.
    name : str
        The argument's name.
    value : object
        One of the class, the registry's JSON, or one of confluent_kafka's class.

    Raises
    ------
    TypeError
        The argument is none of these.
    """
    if value is None or isinstance(value, kind):
        return value
    if not isinstance(value, Mapping) and hasattr(value, "to_dict"):
        value = value.to_dict()
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected {kind.__name__} or dict, got {type(value).__name__}")
    return kind.from_dict(value)


def _object(kind: type[_Kind]) -> Callable[[Any], Any]:
    def made(value: Any) -> Any:
        # The registry's own data may be of any type.
        is_known = isinstance(value, Mapping) or hasattr(value, "to_dict")
        return json_of(kind, kind.__name__, value) if is_known else value

    return made


def _objects(kind: type[_Kind]) -> Callable[[Any], Any]:
    def made(values: Any) -> Any:
        one = _object(kind)
        return [one(value) for value in values] if isinstance(values, list | tuple) else values

    return made


def _choice(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def made(value: Any) -> Any:
        word = getattr(value, "value", value)  # confluent_kafka's enumerations are others
        return kind(word) if word in set(kind) else word

    return made


class RuleParams(_Json):
    """The parameters of a rule.

    Parameters
    ----------
    params : mapping of str to str, optional
    """

    def __init__(self, params: Mapping[str, str] | None = None) -> None:
        super().__init__(params or {})

    @property
    def params(self) -> dict[str, str]:
        """The parameters."""
        return self


class Rule(_Json):
    """A rule for values or for their migration. cykafka applies no rules.

    Parameters
    ----------
    name, doc : str, optional
    kind : RuleKind, optional
    mode : RuleMode, optional
    type : str, optional
        What executes the rule, such as ``CEL`` or ``ENCRYPT``.
    tags : sequence of str, optional
        The tags of the fields that it is for.
    params : RuleParams, optional
    expr : str, optional
    on_success, on_failure : str, optional
        The actions after the rule, such as ``ERROR`` or ``DLQ``.
    disabled : bool, optional
    """

    _made: ClassVar = {
        "kind": _choice(RuleKind),
        "mode": _choice(RuleMode),
        "params": _object(RuleParams),
    }
    name: str | None = _entry("name")
    doc: str | None = _entry("doc")
    kind: RuleKind | None = _entry("kind")
    mode: RuleMode | None = _entry("mode")
    type: str | None = _entry("type")
    tags: list[str] | None = _entry("tags")
    params: RuleParams | None = _entry("params")
    expr: str | None = _entry("expr")
    on_success: str | None = _entry("onSuccess")
    on_failure: str | None = _entry("onFailure")
    disabled: bool | None = _entry("disabled")

    def __init__(
        self,
        name: str | None = None,
        doc: str | None = None,
        kind: RuleKind | str | None = None,
        mode: RuleMode | str | None = None,
        type: str | None = None,
        tags: Sequence[str] | None = None,
        params: RuleParams | Mapping[str, str] | None = None,
        expr: str | None = None,
        on_success: str | None = None,
        on_failure: str | None = None,
        disabled: bool | None = None,
    ) -> None:
        super().__init__()
        self._fill_given(
            name=name,
            doc=doc,
            kind=kind,
            mode=mode,
            type=type,
            tags=tags,
            params=params,
            expr=expr,
            onSuccess=on_success,
            onFailure=on_failure,
            disabled=disabled,
        )


class RuleSet(_Json):
    """The rules of a schema.

    Parameters
    ----------
    migration_rules : list of Rule, optional
        The rules that convert values between versions.
    domain_rules : list of Rule, optional
        The rules for values.
    encoding_rules : list of Rule, optional
        The rules for encoded values.
    enable_at : str, optional
        Who applies the rules: ``CLIENT``, for example.
    """

    _made: ClassVar = dict.fromkeys(
        ("migrationRules", "domainRules", "encodingRules"), _objects(Rule)
    )
    migration_rules: list[Rule] = _entries("migrationRules")
    domain_rules: list[Rule] = _entries("domainRules")
    encoding_rules: list[Rule] = _entries("encodingRules")
    enable_at: str | None = _entry("enableAt")

    def __init__(
        self,
        migration_rules: Sequence[Rule] | None = None,
        domain_rules: Sequence[Rule] | None = None,
        encoding_rules: Sequence[Rule] | None = None,
        enable_at: str | None = None,
    ) -> None:
        super().__init__()
        self._fill_given(
            migrationRules=migration_rules,
            domainRules=domain_rules,
            encodingRules=encoding_rules,
            enableAt=enable_at,
        )


class MetadataTags(_Json):
    """The tags of fields, by the fields' paths.

    Parameters
    ----------
    tags : mapping of str to list of str, optional
    """

    def __init__(self, tags: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(tags or {})

    @property
    def tags(self) -> dict[str, list[str]]:
        """The tags."""
        return self


class MetadataProperties(_Json):
    """A schema's properties, such as its owner.

    Parameters
    ----------
    properties : mapping of str to str, optional
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(properties or {})

    @property
    def properties(self) -> dict[str, str]:
        """The properties."""
        return self


class Metadata(_Json):
    """A schema's metadata.

    Parameters
    ----------
    tags : MetadataTags, optional
    properties : MetadataProperties, optional
    sensitive : sequence of str, optional
        The names of properties with secrets.
    """

    _made: ClassVar = {"tags": _object(MetadataTags), "properties": _object(MetadataProperties)}
    tags: MetadataTags | None = _entry("tags")
    properties: MetadataProperties | None = _entry("properties")
    sensitive: list[str] = _entries("sensitive")

    def __init__(
        self,
        tags: MetadataTags | Mapping[str, Sequence[str]] | None = None,
        properties: MetadataProperties | Mapping[str, str] | None = None,
        sensitive: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._fill_given(tags=tags, properties=properties, sensitive=sensitive)
