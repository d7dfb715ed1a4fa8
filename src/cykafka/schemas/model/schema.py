"""Schemas and the registry's other objects, with confluent_kafka.schema_registry's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cykafka.schemas.model.metadata import Metadata, RuleSet, json_of, plain

__all__ = [
    "Association",
    "ConfigCompatibilityLevel",
    "RegisteredSchema",
    "Schema",
    "SchemaReference",
    "SchemaVersion",
    "ServerConfig",
]


def _checked(value: Any, kind: type) -> Any:
    """Return a value of the registry's JSON. Raise TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _optional(value: Any, kind: type) -> Any:
    return None if value is None else _checked(value, kind)


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another schema refers to.

    Parameters
    ----------
    name : str
        The name by which the other schema refers to it: an Avro full name, a Protobuf import, or
        a JSON Schema URL.
    subject : str
        Its subject in the registry.
    version : int
        Its version in the subject.
    """

    name: str
    subject: str
    version: int

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as the registry's JSON."""
        return {"name": self.name, "subject": self.subject, "version": self.version}

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> SchemaReference:
        """Return the reference in the registry's JSON."""
        name, subject = (_checked(src_dict[key], str) for key in ("name", "subject"))
        return cls(name, subject, int(src_dict["version"]))


@dataclass(frozen=True)
class Schema:
    """A schema without its subject.

    Parameters
    ----------
    schema_str : str
        The schema. For Protobuf it is the text of a .proto file, or a FileDescriptorProto in
        base64.
    schema_type : str, default "AVRO"
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    references : sequence of SchemaReference, optional
        The schemas that it refers to.
    metadata : Metadata or mapping, optional
        The schema's metadata; a mapping is as in the registry's JSON.
    rule_set : RuleSet or mapping, optional
        The schema's rules. cykafka applies no rules: see `docs/schemas.md`.
    """

    schema_str: str
    schema_type: str = "AVRO"
    references: Sequence[SchemaReference] = ()
    metadata: Metadata | Mapping[str, Any] | None = None
    rule_set: RuleSet | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", tuple(self.references or ()))
        object.__setattr__(self, "metadata", json_of(Metadata, "metadata", self.metadata))
        object.__setattr__(self, "rule_set", json_of(RuleSet, "rule_set", self.rule_set))

    def __hash__(self) -> int:
        return hash((self.schema_str, self.schema_type, self.references))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as the registry's JSON."""
        references = [reference.to_dict() for reference in self.references]
        found: dict[str, Any] = {
            "schema": self.schema_str,
            "schemaType": self.schema_type,
            "references": references,
        }
        if self.metadata is not None:
            found["metadata"] = plain(self.metadata)
        if self.rule_set is not None:
            found["ruleSet"] = plain(self.rule_set)
        return found

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Schema:
        """Return the schema in the registry's JSON."""
        rule_set = _optional(src_dict.get("ruleSet"), Mapping)
        for rules in (rule_set or {}).values():
            for rule in rules if isinstance(rules, list) else ():
                _checked(rule, Mapping)
        return cls(
            _checked(src_dict["schema"], str),
            _checked(src_dict.get("schemaType") or "AVRO", str),
            tuple(map(SchemaReference.from_dict, src_dict.get("references") or ())),
            _optional(src_dict.get("metadata"), Mapping),
            rule_set,
        )


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a version of a subject.

    Parameters
    ----------
    subject : str or None
    version : int or None
    schema_id : int or None
        The schema's number in the registry.
    guid : str or None
        The schema's globally unique id; None if the registry has none.
    schema : Schema
    """

    subject: str | None
    version: int | None
    schema_id: int | None
    guid: str | None
    schema: Schema

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> RegisteredSchema:
        """Return the version in the registry's JSON."""
        return cls(
            _optional(src_dict.get("subject"), str),
            _optional(src_dict.get("version"), int),
            _optional(src_dict.get("id"), int),
            _optional(src_dict.get("guid"), str),
            Schema.from_dict(src_dict),
        )


@dataclass(frozen=True)
class SchemaVersion:
    """A subject and one of its versions.

    Parameters
    ----------
    subject : str
    version : int
    """

    subject: str
    version: int

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> SchemaVersion:
        """Return the version in the registry's JSON."""
        return cls(src_dict["subject"], src_dict["version"])


class ConfigCompatibilityLevel(StrEnum):
    """Which other versions of a subject a new version must be compatible with."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"


# The JSON's names of a configuration's fields.
_CONFIG = {
    "compatibility": "compatibility",
    "compatibility_level": "compatibilityLevel",
    "compatibility_group": "compatibilityGroup",
    "default_metadata": "defaultMetadata",
    "override_metadata": "overrideMetadata",
    "default_rule_set": "defaultRuleSet",
    "override_rule_set": "overrideRuleSet",
}


@dataclass
class ServerConfig:
    """The registry's configuration, of all subjects or of one.

    Parameters
    ----------
    compatibility : ConfigCompatibilityLevel or str, optional
        The level, in requests.
    compatibility_level : ConfigCompatibilityLevel or str, optional
        The level, in responses.
    compatibility_group : str, optional
    default_metadata, override_metadata : Metadata or mapping, optional
        A mapping is as in the registry's JSON.
    default_rule_set, override_rule_set : RuleSet or mapping, optional
    """

    compatibility: str | None = None
    compatibility_level: str | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | Mapping[str, Any] | None = None
    override_metadata: Metadata | Mapping[str, Any] | None = None
    default_rule_set: RuleSet | Mapping[str, Any] | None = None
    override_rule_set: RuleSet | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        metadata, rule_set = self.default_metadata, self.default_rule_set
        self.default_metadata = json_of(Metadata, "default_metadata", metadata)
        self.default_rule_set = json_of(RuleSet, "default_rule_set", rule_set)
        metadata, rule_set = self.override_metadata, self.override_rule_set
        self.override_metadata = json_of(Metadata, "override_metadata", metadata)
        self.override_rule_set = json_of(RuleSet, "override_rule_set", rule_set)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as the registry's JSON."""
        given = {name: getattr(self, field) for field, name in _CONFIG.items()}
        return {name: plain(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> ServerConfig:
        """Return the configuration in the registry's JSON."""
        found = cls(**{field: src_dict.get(name) for field, name in _CONFIG.items()})
        for field in ("compatibility", "compatibility_level"):
            if getattr(found, field) is not None:
                setattr(found, field, ConfigCompatibilityLevel(getattr(found, field)))
        return found


@dataclass(frozen=True)
class Association:
    """A subject that the registry associates with a topic.

    Parameters
    ----------
    subject, guid, resource_name, resource_namespace, resource_id, resource_type : str or None
    association_type : str or None
        ``key`` or ``value``.
    frozen : bool, default False
    """

    subject: str | None
    guid: str | None
    resource_name: str | None
    resource_namespace: str | None
    resource_id: str | None
    resource_type: str | None
    association_type: str | None
    frozen: bool = False

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Association:
        """Return the association in the registry's JSON."""
        return cls(
            src_dict.get("subject"),
            src_dict.get("guid"),
            src_dict.get("resourceName"),
            src_dict.get("resourceNamespace"),
            src_dict.get("resourceId"),
            src_dict.get("resourceType"),
            src_dict.get("associationType"),
            bool(src_dict.get("frozen", False)),
        )
