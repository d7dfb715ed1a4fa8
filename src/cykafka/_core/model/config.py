"""Topic, broker and group configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import total_ordering

from cykafka._core.common.errors import KafkaError
from cykafka._core.common.naming import public
from cykafka._core.model.acl import ResourceType
from cykafka._core.model.check import member_of


@public("cykafka.admin")
class AlterConfigOpType(Enum):
    """How to change a property (KIP-339). ``APPEND`` and ``SUBTRACT`` are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@public("cykafka.admin")
class ConfigSource(Enum):
    """Where a property's value comes from."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


@public("cykafka.admin")
class ConfigEntry:
    """A resource's configuration property.

    Parameters
    ----------
    name : str
    value : str or None
        None if the property is not set or sensitive, or for ``DELETE``.
    source : int
        One of :class:`ConfigSource`'s values.
    is_read_only, is_default, is_sensitive, is_synonym : bool
    synonyms : dict of str to ConfigEntry
        Other sources of a value for this property.
    incremental_operation : AlterConfigOpType, optional
        For :meth:`AdminClient.incremental_alter_configs`.
    """

    def __init__(
        self,
        name: str,
        value: str | None,
        source: ConfigSource | int = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Mapping[str, ConfigEntry] | None = None,
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.is_read_only = bool(is_read_only)
        self.is_default = bool(is_default)
        self.is_sensitive = bool(is_sensitive)
        self.is_synonym = bool(is_synonym)
        self.synonyms: Mapping[str, ConfigEntry] = {} if synonyms is None else synonyms
        self.incremental_operation = incremental_operation

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


@public("cykafka.admin")
@total_ordering
class ConfigResource:
    """A resource with a configuration. Equality, order and hash depend on type and name.

    Parameters
    ----------
    restype : ResourceType
        You can also pass a name, in any case, or a number.
    name : str
        The resource name. For a broker, its id.
    set_config : dict of str to str, optional
        The properties that :meth:`AdminClient.alter_configs` sets.
    described_configs : dict of str to ConfigEntry, optional
        The client sets it.
    error : KafkaError, optional
        The client sets it.
    incremental_configs : list of ConfigEntry, optional
        The changes that :meth:`AdminClient.incremental_alter_configs` makes.
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: Mapping[str, str] | None = None,
        described_configs: Mapping[str, ConfigEntry] | None = None,
        error: KafkaError | None = None,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("name: expected a str, got None")
        self.restype = member_of(restype, ResourceType, "restype")
        self.restype_int = self.restype.value
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return self.restype == other.restype and self.name == other.name

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) < (other.restype, other.name)

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Add a property for :meth:`AdminClient.alter_configs` to set.

        Parameters
        ----------
        name, value : str
        overwrite : bool
            False keeps an existing value.
        """
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change for :meth:`AdminClient.incremental_alter_configs` to make."""
        self.incremental_configs.append(config_entry)
