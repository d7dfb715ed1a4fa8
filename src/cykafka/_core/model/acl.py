"""Access control lists (KIP-11, KIP-290)."""

from __future__ import annotations

from enum import Enum
from functools import total_ordering
from typing import ClassVar, TypeVar

from cykafka._core.common.naming import public
from cykafka._core.model import _OrderedEnum
from cykafka._core.model.check import member_of

_E = TypeVar("_E", bound=Enum)


@public("cykafka.admin")
class ResourceType(_OrderedEnum):
    """A kind of resource. ``ANY`` is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


@public("cykafka.admin")
class ResourcePatternType(_OrderedEnum):
    """What a resource name means (KIP-290). ``ANY`` and ``MATCH`` are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


@public("cykafka.admin")
class AclOperation(_OrderedEnum):
    """An operation that a rule allows or denies. ``ANY`` is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


@public("cykafka.admin")
class AclPermissionType(_OrderedEnum):
    """Whether an operation is allowed. ``ANY`` is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@public("cykafka.admin")
@total_ordering
class AclBinding:
    """A rule that allows or denies a principal, from a host, an operation on resources.

    You can also pass enumeration members by name, in any case, or by number.

    Parameters
    ----------
    restype : ResourceType
    name : str
        The resource name. For a broker, its id.
    resource_pattern_type : ResourcePatternType
        Whether `name` is the full name or a prefix.
    principal : str
        The user, such as ``"User:alice"``.
    host : str
        The client's host; ``"*"`` for every host.
    operation : AclOperation
    permission_type : AclPermissionType

    Raises
    ------
    ValueError
        An argument is None, or an enumeration member that is only for filters.
    TypeError
        An argument has the wrong type.
    """

    _text_required: ClassVar[bool] = True
    _refused: ClassVar[tuple[Enum, ...]] = (
        ResourceType.ANY,
        ResourcePatternType.ANY,
        ResourcePatternType.MATCH,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        self.name = name
        self.principal = principal
        self.host = host
        self._check_texts()
        self.restype = self._member(restype, ResourceType, "restype")
        self.resource_pattern_type = self._member(
            resource_pattern_type, ResourcePatternType, "resource_pattern_type"
        )
        self.operation = self._member(operation, AclOperation, "operation")
        self.permission_type = self._member(permission_type, AclPermissionType, "permission_type")
        # Public in confluent_kafka, so programs may read them.
        self.restype_int = self.restype.value
        self.resource_pattern_type_int = self.resource_pattern_type.value
        self.operation_int = self.operation.value
        self.permission_type_int = self.permission_type.value

    def _check_texts(self) -> None:
        for argument in ("name", "principal", "host"):
            value = getattr(self, argument)
            if value is None and self._text_required:
                raise ValueError(f"{argument}: expected a str, got None")
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{argument}: expected a str, got {type(value).__name__}")

    def _member(self, value: object, enumeration: type[_E], argument: str) -> _E:
        if value is None:
            raise ValueError(f"{argument}: expected a {enumeration.__name__}, got None")
        member = member_of(value, enumeration, argument)
        if member in self._refused:
            raise ValueError(f"{argument}: {type(self).__name__} cannot have {member}")
        return member

    def _to_tuple(self) -> tuple[object, ...]:
        return (
            self.restype,
            self.name,
            self.resource_pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(str(value) for value in self._to_tuple())})"

    def __hash__(self) -> int:
        return hash(self._to_tuple())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AclBinding):
            return NotImplemented
        return self._to_tuple() == other._to_tuple()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, AclBinding):
            return NotImplemented
        return self._to_tuple() < other._to_tuple()


@public("cykafka.admin")
class AclBindingFilter(AclBinding):
    """A filter that selects the rules that match every field.

    Parameters
    ----------
    restype : ResourceType
        ``ANY`` for every kind.
    name : str or None
        None for every name.
    resource_pattern_type : ResourcePatternType
        ``ANY`` for every type; ``MATCH`` for all rules that apply to `name`: literal names,
        prefixes of it, and the wildcard.
    principal, host : str or None
        None for every principal or host.
    operation : AclOperation
        ``ANY`` for every operation.
    permission_type : AclPermissionType
        ``ANY`` for both.
    """

    _text_required = False
    _refused = (
        ResourceType.UNKNOWN,
        ResourcePatternType.UNKNOWN,
        AclOperation.UNKNOWN,
        AclPermissionType.UNKNOWN,
    )
