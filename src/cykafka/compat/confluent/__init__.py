"""cykafka as ``confluent_kafka``, for code that imports that name and that you cannot change.

    from cykafka.compat import confluent
    confluent.install()  # before anything imports confluent_kafka

or, without changing the code::

    python -m cykafka.compat.confluent script.py arguments ...

Then cykafka provides ``confluent_kafka`` and its modules ``admin``, ``aio``, ``cimpl``, ``error``,
``serialization`` and so on. The modules that cykafka lacks (``avro``, ``kafkatest``, ...) are
Python code. They come from the installed confluent-kafka package and import cykafka's
``confluent_kafka``. The compiled module of that package is never loaded.

``confluent_kafka.schema_registry`` also comes from the installed package. Without the package it
is :mod:`cykafka.schemas`, which needs the extra ``schemas`` and applies no rules.

``confluent_kafka.version()`` and ``__version__`` return the confluent_kafka release with this
interface, because code compares them with the release that it needs. ``cykafka.version()`` returns
cykafka's version, and ``confluent_kafka.__file__`` is cykafka's path. ``libversion()`` returns the
loaded librdkafka's version. ``importlib.metadata`` still reports the installed confluent-kafka, if
any.
"""

from __future__ import annotations

import importlib
import importlib.util
from enum import Enum
from importlib.machinery import ModuleSpec
from types import ModuleType

import cykafka
from cykafka.compat._alias import Alias

__all__ = ["INTERFACE_VERSION", "install", "uninstall"]

INTERFACE_VERSION = "2.16.1"

_NAME = "confluent_kafka"
# confluent_kafka's modules that cykafka also contains.
_SAME = (
    "admin",
    "aio",
    "deserializing_consumer",
    "deserializing_share_consumer",
    "error",
    "serialization",
    "serializing_producer",
)
_SCHEMAS = "cykafka.schemas"
# The modules of confluent_kafka.schema_registry, and the modules with their names.
_REGISTRY = {
    "": (
        "model.schema",
        "model.metadata",
        "registry.client",
        "registry.aio",
        "model.error",
        "model.framing",
        "model.subjects",
    ),
    ".avro": ("serdes.avro_serde",),
    ".error": ("model.error",),
    ".json_schema": ("serdes.json_serde",),
    ".protobuf": ("serdes.protobuf_serde",),
    ".schema_registry_client": (
        "model.schema",
        "model.metadata",
        "registry.client",
        "registry.aio",
        "model.error",
    ),
    ".serde": ("serdes.serde", "model.subjects", "model.framing"),
}
# confluent_kafka's private modules, whose names it also exports elsewhere.
_ADMIN_PARTS = (
    "_acl",
    "_cluster",
    "_config",
    "_group",
    "_listoffsets",
    "_metadata",
    "_records",
    "_resource",
    "_scram",
    "_topic",
)
# The values of ListOffsets.
_OFFSET_SPECS = {
    "OFFSET_SPEC_LATEST": -1,
    "OFFSET_SPEC_EARLIEST": -2,
    "OFFSET_SPEC_MAX_TIMESTAMP": -3,
}


_alias = Alias(_NAME, "cykafka.compat.confluent.install()")


def install() -> None:
    """Make ``import confluent_kafka`` import cykafka in this process from now on.

    Calling it again changes nothing.

    Raises
    ------
    ImportError
        The real confluent_kafka is already imported, and its users would keep using it.
    """
    if _alias.is_installed():
        return
    _alias.check()
    _alias.uninstall()  # sys.modules may have been emptied
    # Find the package without importing it: its directory contains the modules that cykafka lacks.
    found = importlib.util.find_spec(_NAME)
    folders = list(found.submodule_search_locations or ()) if found is not None else []

    def explain(fullname: str) -> str | None:
        if fullname.split(".")[1] in _SAME:
            # Searching further would load cykafka's files again, under another name.
            return f"cykafka has no module for {fullname}"
        if folders:
            return None
        return (
            f"{fullname} belongs to the confluent-kafka package, which is not installed "
            "(pip install confluent-kafka)"
        )

    later = {
        f"{_NAME}.schema_registry{name}": [f"{_SCHEMAS}.{source}" for source in sources]
        for name, sources in _REGISTRY.items()
    }
    _alias.install(_modules(folders), explain, {} if folders else later)


def uninstall() -> None:
    """Undo install(): the next ``import confluent_kafka`` imports the installed package.

    Code that has already imported cykafka by that name is not affected.
    """
    _alias.uninstall()


def _modules(folders: list[str]) -> dict[str, ModuleType]:
    """Return the modules to put into sys.modules."""
    names = {name: getattr(cykafka, name) for name in cykafka.__all__}
    top = ModuleType(_NAME, cykafka.__doc__)
    top.__dict__.update(names)
    top.__dict__.update(
        __all__=list(cykafka.__all__),
        __cykafka__=cykafka,
        __file__=__file__,
        __path__=folders,
        __version__=INTERFACE_VERSION,
        version=_version,
    )
    spec = ModuleSpec(_NAME, None, origin=__file__, is_package=True)
    spec.submodule_search_locations = folders
    top.__spec__ = spec
    modules = {_NAME: top}
    for name in _SAME:
        modules[f"{_NAME}.{name}"] = importlib.import_module(f"cykafka.{name}")
    admin = modules[f"{_NAME}.admin"]
    # confluent_kafka's compiled module contains the classes of both modules.
    flat = {name: getattr(admin, name) for name in admin.__all__} | _constants(admin)
    for name in ("cimpl", "_model"):
        modules[f"{_NAME}.{name}"] = module = ModuleType(f"{_NAME}.{name}")
        module.__dict__.update({**flat, **names, "__file__": __file__, "version": _version})
    for name, module in list(modules.items())[1:]:
        setattr(top, name.rpartition(".")[2], module)
    modules.update((f"{_NAME}.admin.{name}", admin) for name in _ADMIN_PARTS)
    return modules


def _constants(admin: ModuleType) -> dict[str, int]:
    """Return the integers in confluent_kafka's compiled module, which define its enumerations."""
    families: dict[str, type[Enum]] = {
        "ACL_OPERATION": admin.AclOperation,
        "ACL_PERMISSION_TYPE": admin.AclPermissionType,
        "ALTER_CONFIG_OP_TYPE": admin.AlterConfigOpType,
        "CONSUMER_GROUP_STATE": cykafka.ConsumerGroupState,
        "CONSUMER_GROUP_TYPE": cykafka.ConsumerGroupType,
        "ELECTION_TYPE": cykafka.ElectionType,
        "ISOLATION_LEVEL": cykafka.IsolationLevel,
        "RESOURCE_PATTERN": admin.ResourcePatternType,
        "SCRAM_MECHANISM": admin.ScramMechanism,
        "SHARE_ACKNOWLEDGE_TYPE": cykafka.AcknowledgeType,
    }
    constants = {
        # Two members have other names in confluent_kafka.
        f"{family}_{member.name.removeprefix('SCRAM_').replace('BALANCING', 'BALANCE')}": (
            member.value
        )
        for family, members in families.items()
        for member in members
    }
    return constants | _OFFSET_SPECS


def _version() -> str:
    """Return the confluent_kafka release with this interface."""
    return INTERFACE_VERSION
