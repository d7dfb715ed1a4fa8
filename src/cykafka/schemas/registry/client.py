"""A Schema Registry client with the names and arguments of confluent_kafka's."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import UUID
from weakref import WeakSet

from cykafka._steps import run
from cykafka.schemas.model.cache import Cache
from cykafka.schemas.model.document import SCHEMA_TYPES, Document, UnfitError
from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.model.faults import needing_libraries
from cykafka.schemas.model.references import SERIALIZED, collect_parts
from cykafka.schemas.model.rules import READING, check_rules
from cykafka.schemas.model.schema import (
    Association,
    RegisteredSchema,
    Schema,
    SchemaVersion,
    ServerConfig,
)
from cykafka.schemas.registry.options import read_options
from cykafka.schemas.registry.transport import Transport

if TYPE_CHECKING:
    from pyarrow import Table

__all__ = ["KnownSchemas", "NotKnownError", "SchemaRegistryClient"]

_Value = TypeVar("_Value")
_Version: TypeAlias = int | Literal["latest"]
_ABSENT_S = 5.0
_ASSOCIATIONS = "\0associations"  # not a subject


@dataclass(frozen=True)
class _Caches:
    """What a client remembers.

    Parameters
    ----------
    schemas : Cache
        By id or GUID; also that there is none.
    versions : Cache
        Versions of subjects, by number or by schema.
    latest : Cache
        The latest versions of subjects, and the subjects of topics.
    documents : Cache
        Schemas with those that they refer to.
    """

    schemas: Cache
    versions: Cache
    latest: Cache
    documents: Cache

    def all(self) -> tuple[Cache, ...]:
        return self.schemas, self.versions, self.latest, self.documents


class SchemaRegistryClient:
    """A Schema Registry client. Thread-safe, and usable in a forked process.

    The client caches schemas by id, GUID and version until it is closed, and sends one request for
    a schema that several threads need. It remembers for 5 seconds, or ``cache.latest.ttl.sec`` if
    that is less, that an id does not exist. If the registry is unavailable, cached schemas remain
    available, including the latest versions that have expired: one caller in 5 seconds then waits
    for a request without retries, at most 2 seconds for each URL.

    Parameters
    ----------
    conf : mapping
        The options of `confluent_kafka.schema_registry.SchemaRegistryClient`;
        `docs/schemas-reference.md` lists them. ``url`` is required. A value that is None or empty
        is not set, and numbers may be texts. Without ``proxy`` the environment names the proxies,
        as for `urllib.request.getproxies`.

    Raises
    ------
    TypeError
        `conf` is not a mapping.
    ValueError
        An option is unknown or wrong. The message names the option, and never contains secrets.
        Or the environment's proxy is unusable.
    SchemaRegistryError
        The certificates cannot be read.

    Notes
    -----
    All methods that send a request raise SchemaRegistryError: SchemaNotFoundError for a missing
    subject, version, id or schema, SchemaRefusedError for an invalid or incompatible schema. They
    raise RuntimeError after `close()`.

    Examples
    --------
    >>> with SchemaRegistryClient({"url": "http://localhost:8081"}) as client:
    ...     client.get_latest_version("orders-value").schema.schema_str
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        options = read_options(conf)
        self._conf = conf
        self._transport = Transport(options)
        capacity, ttl = options["cache.capacity"], options["cache.latest.ttl.sec"]
        absent = _ABSENT_S if ttl is None else min(_ABSENT_S, ttl)
        self._caches = _Caches(
            Cache(capacity, absent_ttl=absent),
            Cache(capacity),
            Cache(capacity, ttl),
            Cache(capacity, absent_ttl=absent),
        )
        _clients.add(self)

    @staticmethod
    def new_client(conf: Mapping[str, Any]) -> SchemaRegistryClient:
        """Return a client."""
        return SchemaRegistryClient(conf)

    def __enter__(self) -> SchemaRegistryClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the retries of other threads. May be called again."""
        self._transport.close()

    def config(self) -> Mapping[str, Any]:
        """Return the options, as given."""
        return self._conf

    # -- schemas

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,
    ) -> Schema:
        """Return the schema with an id.

        Parameters
        ----------
        schema_id : int
        subject_name : str, optional
            A subject with the schema, or a context (``:.name:``).
        fmt : str, optional
            The schema's format: for Avro ``resolved``, for Protobuf ``serialized``.
        reference_format : str, optional
            The references' format.
        """
        query = {"subject": subject_name, "format": fmt, "reference_format": reference_format}
        path = f"/schemas/ids/{int(schema_id)}"
        key = (subject_name, schema_id, fmt, reference_format)
        return self._fetch(
            self._caches.schemas, key, lambda: self._get(path, Schema.from_dict, query)
        )

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """Return the schema with a GUID, which is the same in all registries.

        Parameters
        ----------
        guid : str
        fmt : str, optional
            As in `get_schema`.
        """
        path = f"/schemas/guids/{_quoted(str(guid))}"
        return self._fetch(
            self._caches.schemas,
            (None, str(guid), fmt),
            lambda: self._get(path, Schema.from_dict, {"format": fmt}),
        )

    def get_schema_types(self) -> list[str]:
        """Return the types of schemas that the registry supports, such as AVRO."""
        return self._get("/schemas/types", list)

    def get_subjects_by_schema_id(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the subjects with a schema.

        Parameters
        ----------
        schema_id : int
        subject_name : str, optional
            Return this subject only.
        deleted : bool, default False
            Also return deleted subjects.
        offset, limit : int
            Which part of the list to return; a negative limit returns the rest.
        """
        query = {"subject": subject_name, "deleted": deleted, **_page(offset, limit)}
        return self._get(f"/schemas/ids/{int(schema_id)}/subjects", list, query)

    def get_schema_versions(
        self,
        schema_id: int,
        subject_name: str | None = None,
        deleted: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[SchemaVersion]:
        """Return the subjects and versions with a schema. The arguments are as above."""
        query = {"subject": subject_name, "deleted": deleted, **_page(offset, limit)}
        return self._get(
            f"/schemas/ids/{int(schema_id)}/versions",
            lambda found: [SchemaVersion.from_dict(each) for each in found],
            query,
        )

    # -- subjects

    def register_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> int:
        """Register a schema in a subject, and return its id.

        If the subject has the schema, this returns the schema's id.

        Parameters
        ----------
        subject_name : str
        schema : Schema
        normalize_schemas : bool, default False
            The registry ignores differences without a meaning, such as the order of properties.
        """
        found = self.register_schema_full_response(subject_name, schema, normalize_schemas)
        if found.schema_id is None:
            raise AssertionError
        return found.schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Register a schema like `register_schema`, and return all that the registry responds."""
        _check_schema(schema)
        path = f"/subjects/{_quoted(subject_name)}/versions"
        query = {"normalize": normalize_schemas}

        def parsed(content: Any) -> RegisteredSchema:
            given = {"schema": schema.schema_str, "subject": subject_name, **content}
            found = RegisteredSchema.from_dict({**given, "id": int(content["id"])})
            # Registries respond with the schema only if they have changed it.
            return found if "schema" in content else replace(found, schema=schema)

        def register() -> RegisteredSchema:
            found = self._send("POST", path, parsed, query, schema.to_dict())
            self._caches.latest.clear(subject_name)
            for cache in (self._caches.schemas, self._caches.documents):
                cache.forget_errors()
            return found

        key = (subject_name, schema, normalize_schemas)
        return self._fetch(self._caches.versions, key, register)

    def lookup_schema(
        self,
        subject_name: str,
        schema: Schema,
        normalize_schemas: bool = False,
        fmt: str | None = None,
        deleted: bool = False,
    ) -> RegisteredSchema:
        """Return a schema's id and version in a subject.

        Parameters
        ----------
        subject_name : str
        schema : Schema
        normalize_schemas : bool, default False
            As in `register_schema`.
        fmt : str, optional
            As in `get_schema`.
        deleted : bool, default False
            Also find deleted versions.
        """
        _check_schema(schema)
        path = f"/subjects/{_quoted(subject_name)}"
        query = {"normalize": normalize_schemas, "format": fmt, "deleted": deleted}

        def parsed(content: Any) -> RegisteredSchema:
            return replace(RegisteredSchema.from_dict(content), schema=schema)

        return self._fetch(
            self._caches.versions,
            (subject_name, schema, normalize_schemas, fmt, deleted),
            lambda: self._send("POST", path, parsed, query, schema.to_dict()),
        )

    def get_subjects(
        self,
        subject_prefix: str | None = None,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the subjects.

        Parameters
        ----------
        subject_prefix : str, optional
            Return only subjects that begin with this. ``:*:`` returns those of all contexts.
        deleted : bool, default False
            Also return deleted subjects.
        deleted_only : bool, default False
            Return only deleted subjects.
        offset, limit : int
            As in `get_subjects_by_schema_id`.
        """
        query = {
            "subjectPrefix": subject_prefix,
            "deleted": deleted,
            "deleted_only": deleted_only,
            **_page(offset, limit),
        }
        return self._get("/subjects", list, query)

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """Delete a subject, and return its versions.

        Parameters
        ----------
        subject_name : str
        permanent : bool, default False
            Delete a subject for good that is deleted already.
        """
        path = f"/subjects/{_quoted(subject_name)}"
        found = self._send("DELETE", path, list, {"permanent": permanent})
        self._forget(subject_name)
        return found

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        """Return a subject's latest version. Cached for ``cache.latest.ttl.sec``.

        Parameters
        ----------
        subject_name : str
        fmt : str, optional
            As in `get_schema`.
        """
        return self._fetch(
            self._caches.latest,
            (subject_name, fmt),
            lambda: self._version(subject_name, "latest", False, fmt),
            lambda: self._version(subject_name, "latest", False, fmt, is_urgent=True),
        )

    def get_latest_with_metadata(
        self,
        subject_name: str,
        metadata: Mapping[str, str],
        deleted: bool = False,
        fmt: str | None = None,
    ) -> RegisteredSchema:
        """Return a subject's latest version with some metadata. Cached like the latest version.

        Parameters
        ----------
        subject_name : str
        metadata : mapping of str to str
            The properties that the version must have.
        deleted : bool, default False
            Also find deleted versions.
        fmt : str, optional
            As in `get_schema`.
        """
        query = {
            "key": list(metadata),
            "value": list(metadata.values()),
            "deleted": deleted,
            "format": fmt,
        }
        path = f"/subjects/{_quoted(subject_name)}/metadata"
        return self._fetch(
            self._caches.latest,
            (subject_name, frozenset(metadata.items()), deleted, fmt),
            lambda: self._get(path, RegisteredSchema.from_dict, query),
            lambda: self._get(path, RegisteredSchema.from_dict, query, is_urgent=True),
        )

    def get_version(
        self,
        subject_name: str,
        version: _Version = "latest",
        deleted: bool = False,
        fmt: str | None = None,
    ) -> RegisteredSchema:
        """Return a version of a subject. Caches versions with a number only.

        Parameters
        ----------
        subject_name : str
        version : int or "latest"
        deleted : bool, default False
            Also find a deleted version.
        fmt : str, optional
            As in `get_schema`.
        """

        def find() -> RegisteredSchema:
            return self._version(subject_name, version, deleted, fmt)

        if version == "latest" or int(version) < 0:
            return find()
        version = int(version)
        return self._fetch(self._caches.versions, (subject_name, version, deleted, fmt), find)

    def get_referenced_by(
        self,
        subject_name: str,
        version: _Version = "latest",
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """Return the ids of the schemas that refer to a version of a subject.

        Parameters
        ----------
        subject_name : str
        version : int or "latest"
        offset, limit : int
            As in `get_subjects_by_schema_id`.
        """
        path = f"/subjects/{_quoted(subject_name)}/versions/{version}/referencedby"
        return self._get(path, list, _page(offset, limit))

    def get_versions(
        self,
        subject_name: str,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """Return the numbers of a subject's versions. The arguments are as in `get_subjects`."""
        query = {"deleted": deleted, "deleted_only": deleted_only, **_page(offset, limit)}
        return self._get(f"/subjects/{_quoted(subject_name)}/versions", list, query)

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version of a subject, and return its number.

        Parameters
        ----------
        subject_name : str
        version : int
        permanent : bool, default False
            Delete a version for good that is deleted already.
        """
        path = f"/subjects/{_quoted(subject_name)}/versions/{version}"
        found = self._send("DELETE", path, int, {"permanent": permanent})
        self._forget(subject_name)
        return found

    def get_contexts(self, offset: int = 0, limit: int = -1) -> list[str]:
        """Return the contexts. The arguments are as in `get_subjects_by_schema_id`."""
        return self._get("/contexts", list, _page(offset, limit))

    def get_associations_by_resource_name(
        self,
        resource_name: str,
        resource_namespace: str,
        resource_type: str | None = None,
        association_types: Sequence[str] | None = None,
        offset: int = 0,
        limit: int = -1,
    ) -> list[Association]:
        """Return the subjects that the registry associates with a topic.

        Parameters
        ----------
        resource_name : str
            The topic.
        resource_namespace : str
            The cluster's id; ``-`` finds the topics of all clusters.
        resource_type : str, optional
            ``topic``.
        association_types : sequence of str, optional
            ``key``, ``value``.
        offset, limit : int
            As in `get_subjects_by_schema_id`.
        """
        return self._associations(
            resource_name, resource_namespace, resource_type, association_types, offset, limit
        )

    def _associations(
        self,
        resource_name: str,
        resource_namespace: str,
        resource_type: str | None,
        association_types: Sequence[str] | None,
        offset: int = 0,
        limit: int = -1,
        *,
        is_urgent: bool = False,
    ) -> list[Association]:
        query = {
            "resourceType": resource_type,
            "associationType": association_types and list(association_types),
            **_page(offset, limit),
        }
        path = f"/associations/resources/{_quoted(resource_namespace)}/{_quoted(resource_name)}"

        def parsed(content: Any) -> list[Association]:
            return [Association.from_dict(each) for each in content]

        return self._get(path, parsed, query, is_urgent=is_urgent)

    def associated_subjects(self, topic: str, cluster: str, kind: str) -> tuple[str | None, ...]:
        """Return the subjects that the registry associates with a topic's keys or values.

        Cached like the latest version, also that there is none.

        Parameters
        ----------
        topic : str
        cluster : str
            The cluster's id, or ``-``.
        kind : str
            ``key`` or ``value``.
        """

        def find(*, is_urgent: bool = False) -> tuple[str | None, ...]:
            try:
                found = self._associations(topic, cluster, "topic", [kind], is_urgent=is_urgent)
            except SchemaRegistryError as error:
                # A registry without associations does not have the address.
                if error.http_status_code != 404:
                    raise
                return ()
            return tuple(each.subject for each in found)

        return self._fetch(
            self._caches.latest,
            (_ASSOCIATIONS, topic, cluster, kind),
            find,
            lambda: find(is_urgent=True),
        )

    # -- compatibility, configuration and modes

    def test_compatibility(
        self,
        subject_name: str,
        schema: Schema,
        version: _Version = "latest",
        normalize: bool = False,
        verbose: bool = False,
    ) -> bool:
        """Return whether a schema is compatible with a version of a subject.

        Parameters
        ----------
        subject_name : str
        schema : Schema
        version : int or "latest"
        normalize : bool, default False
            As in `register_schema`.
        verbose : bool, default False
            The registry also responds with the reasons, which are not returned.
        """
        path = f"/compatibility/subjects/{_quoted(subject_name)}/versions/{version}"
        return self._test(path, schema, normalize, verbose)

    def test_compatibility_all_versions(
        self, subject_name: str, schema: Schema, normalize: bool = False, verbose: bool = False
    ) -> bool:
        """Return whether a schema is compatible with all versions that the subject's level names.

        The arguments are as in `test_compatibility`.
        """
        path = f"/compatibility/subjects/{_quoted(subject_name)}/versions"
        return self._test(path, schema, normalize, verbose)

    def find_incompatibilities(
        self,
        subject_name: str,
        schema: Schema,
        version: _Version | None = None,
        normalize: bool = False,
    ) -> list[str]:
        """Return why a schema is incompatible with a subject; an empty list if it is compatible.

        The arguments are as in `test_compatibility`. Without a version the registry compares the
        schema with all versions that the subject's level names.
        """
        _check_schema(schema)
        path = f"/compatibility/subjects/{_quoted(subject_name)}/versions"

        def parsed(content: Any) -> list[str]:
            if content["is_compatible"]:
                return []
            return list(map(str, content.get("messages") or ["the registry gives no reason"]))

        return self._send(
            "POST",
            path if version is None else f"{path}/{version}",
            parsed,
            {"normalize": normalize, "verbose": True},
            schema.to_dict(),
        )

    def set_compatibility(
        self, subject_name: str | None = None, level: str | None = None
    ) -> dict[str, Any]:
        """Set the compatibility level of a subject, or of all subjects.

        Parameters
        ----------
        subject_name : str, optional
        level : str
            See `ConfigCompatibilityLevel`.

        Returns
        -------
        dict
            The registry's response, with the level as ``compatibility``.
        """
        if level is None:
            raise ValueError("level is missing: expected BACKWARD, FULL or another level")
        body = {"compatibility": str(level).upper()}
        return self._send("PUT", _config(subject_name), dict, None, body)

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility level of a subject, or of all subjects."""
        return self._get(_config(subject_name), lambda found: str(found["compatibilityLevel"]))

    def set_config(
        self, subject_name: str | None = None, config: ServerConfig | None = None
    ) -> dict[str, Any]:
        """Set the configuration of a subject, or of all subjects.

        Parameters
        ----------
        subject_name : str, optional
        config : ServerConfig

        Returns
        -------
        dict
            The registry's response.
        """
        if config is None:
            raise ValueError("config is missing: expected a ServerConfig")
        return self._send("PUT", _config(subject_name), dict, None, config.to_dict())

    def get_config(self, subject_name: str | None = None) -> ServerConfig:
        """Return the configuration of a subject, or of all subjects."""
        return self._get(_config(subject_name), ServerConfig.from_dict)

    def delete_config(self, subject_name: str | None = None) -> ServerConfig:
        """Reset the configuration of a subject, or of all subjects, and return the old one."""
        return self._send("DELETE", _config(subject_name), ServerConfig.from_dict)

    def get_mode(self, subject_name: str) -> str:
        """Return a subject's mode: READWRITE, READONLY or IMPORT."""
        return self._get(f"/mode/{_quoted(subject_name)}", _mode)

    def update_mode(self, subject_name: str, mode: str, force: bool = False) -> str:
        """Set a subject's mode, and return it.

        Parameters
        ----------
        subject_name : str
        mode : str
            See `get_mode`.
        force : bool, default False
            Also set IMPORT if the subject has schemas.
        """
        path = f"/mode/{_quoted(subject_name)}"
        return self._send("PUT", path, _mode, {"force": force}, {"mode": mode})

    def delete_mode(self, subject_name: str) -> str:
        """Reset a subject's mode, and return the old one."""
        return self._send("DELETE", f"/mode/{_quoted(subject_name)}", _mode)

    def get_global_mode(self) -> str:
        """Return the mode of subjects without their own."""
        return self._get("/mode", _mode)

    def update_global_mode(self, mode: str, force: bool = False) -> str:
        """Set the mode of subjects without their own. The arguments are as in `update_mode`."""
        return self._send("PUT", "/mode", _mode, {"force": force}, {"mode": mode})

    # -- caches

    def clear_latest_caches(self) -> None:
        """Forget the latest versions, and the subjects that are associated with topics."""
        self._caches.latest.clear()

    def clear_associations(self) -> None:
        """Forget the subjects of `associated_subjects`."""
        self._caches.latest.clear(_ASSOCIATIONS)

    def clear_caches(self) -> None:
        """Forget all schemas and versions."""
        for cache in self._caches.all():
            cache.clear()

    # -- schemas with the schemas that they refer to

    def document_by_id(self, schema_id: int | UUID, subject_name: str | None = None) -> Document:
        """Return the schema with an id or GUID, and the schemas that it refers to.

        Parameters
        ----------
        schema_id : int or UUID
        subject_name : str, optional
            As in `get_schema`.

        Raises
        ------
        UnfitError
            The schema's type is unknown, or it has rules for reading.
        """

        def find() -> Document:
            if isinstance(schema_id, UUID):
                schema = self.get_schema_by_guid(str(schema_id))
                if schema.schema_type == SCHEMA_TYPES["protobuf"]:
                    schema = self.get_schema_by_guid(str(schema_id), SERIALIZED)
                return self._document(schema, None, subject_name, READING)
            schema = self.get_schema(schema_id, subject_name)
            return self._document(schema, schema_id, subject_name, READING)

        return self._fetch(self._caches.documents, (subject_name, schema_id), find)

    def document_by_version(
        self,
        subject_name: str,
        version: int | str = "latest",
        *,
        modes: tuple[str, ...] | None = None,
    ) -> Document:
        """Return a version of a subject, and the schemas that it refers to. Raises as above.

        Parameters
        ----------
        subject_name : str
        version : int, or str with a number or "latest"
        modes : tuple of str, optional
            The modes of rules that the schema must not have, such as ``READ``; by default all.
        """
        if version == "latest":
            found = self.get_latest_version(subject_name)
        else:
            found = self.get_version(subject_name, int(version))
        return self.document(found.schema, found.schema_id, subject_name, modes=modes)

    def document(
        self,
        schema: Schema,
        id: int | None = None,
        subject_name: str | None = None,
        *,
        modes: tuple[str, ...] | None = None,
    ) -> Document:
        """Return a schema with the schemas that it refers to. Raises as above.

        Parameters
        ----------
        schema : Schema
        id : int, optional
            The schema's id. With an id, this requests a Protobuf schema's descriptor.
        subject_name : str, optional
            As in `get_schema`.
        modes : tuple of str, optional
            As in `document_by_version`.
        """
        return self._fetch(
            self._caches.documents,
            (subject_name, id, schema, modes),
            lambda: self._document(schema, id, subject_name, modes),
        )

    def _document(
        self,
        schema: Schema,
        schema_id: int | None,
        subject_name: str | None,
        modes: tuple[str, ...] | None,
    ) -> Document:
        formats = {name: format for format, name in SCHEMA_TYPES.items()}
        format = formats.get(schema.schema_type)
        if format is None:
            raise UnfitError(f"its type is {schema.schema_type}, expected {', '.join(formats)}")
        check_rules(schema, modes)
        if format == "protobuf" and schema_id is not None:
            schema = self.get_schema(schema_id, subject_name, SERIALIZED)
        parts = run(collect_parts(self, schema, subject_name))
        return Document(format, schema.schema_str, parts, tuple(schema.references), schema_id)

    # -- batches

    def decode_batch(
        self,
        batch: Any,
        value: str = "avro",
        key: str | None = None,
        *,
        schema: Schema | str | None = None,
        key_schema: Schema | str | None = None,
        mode: str = "PERMISSIVE",
    ) -> Table:
        """Return a batch of records as a table, with a column for each field of the values.

        `cykafka.schemas.arrow.batches.decode_batch` describes the arguments.
        """
        _check_named("schema", schema)
        _check_named("key_schema", key_schema)
        with needing_libraries():
            from cykafka.schemas.arrow.batches import decode_batch

        return decode_batch(
            self, batch, value, key, schema=schema, key_schema=key_schema, mode=mode
        )

    def encode_table(
        self,
        topic: str | None,
        data: Any,
        *,
        schema: Schema | str | None = None,
        subject: str | None = None,
        apart: Iterable[str | None] = (),
    ) -> Table:
        """Return a table for `Producer.publish_arrow`, whose column ``value`` is encoded.

        `cykafka.schemas.arrow.batches.encode_table` describes the arguments.
        """
        _check_named("schema", schema)
        with needing_libraries():
            from cykafka.schemas.arrow.batches import encode_table

        return encode_table(self, topic, data, schema=schema, subject=subject, apart=apart)

    # -- requests

    def _after_fork(self) -> None:
        for cache in self._caches.all():
            cache.after_fork()
        self._transport.after_fork()

    def _fetch(
        self,
        cache: Cache,
        key: Hashable,
        find: Callable[[], _Value],
        find_again: Callable[[], _Value] | None = None,
    ) -> _Value:
        """Return a cached value, or what `find` requests; `find_again` if it has expired."""
        self._transport.check_open()
        return cache.fetch(key, find, find_again)

    def _send(
        self,
        method: str,
        path: str,
        parse: Callable[[Any], _Value],
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        is_urgent: bool = False,
    ) -> _Value:
        return self._transport.request(
            method, path, parse, query=query, body=body, is_urgent=is_urgent
        )

    def _get(
        self,
        path: str,
        parse: Callable[[Any], _Value],
        query: Mapping[str, Any] | None = None,
        *,
        is_urgent: bool = False,
    ) -> _Value:
        return self._send("GET", path, parse, query, is_urgent=is_urgent)

    def _version(
        self,
        subject_name: str,
        version: _Version,
        deleted: bool,
        fmt: str | None,
        *,
        is_urgent: bool = False,
    ) -> RegisteredSchema:
        path = f"/subjects/{_quoted(subject_name)}/versions/{version}"
        query = {"deleted": deleted, "format": fmt}
        return self._get(path, RegisteredSchema.from_dict, query, is_urgent=is_urgent)

    def _test(self, path: str, schema: Schema, normalize: bool, verbose: bool) -> bool:
        _check_schema(schema)
        query = {"normalize": normalize, "verbose": verbose}
        return self._send(
            "POST", path, lambda found: bool(found["is_compatible"]), query, schema.to_dict()
        )

    def _forget(self, subject_name: str) -> None:
        for cache in self._caches.all():
            cache.clear(subject_name)
        self.clear_associations()


_clients: WeakSet[SchemaRegistryClient] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)


class NotKnownError(LookupError):
    """A client's caches do not contain the result, so it needs a request."""


class KnownSchemas(SchemaRegistryClient):
    """A client's cached results, for code that must not wait.

    Parameters
    ----------
    client : SchemaRegistryClient
        The client, which shares its caches.

    Notes
    -----
    Methods that need a request raise NotKnownError instead.
    """

    def __init__(self, client: SchemaRegistryClient) -> None:
        self._conf = client._conf
        self._transport = client._transport
        self._caches = client._caches

    def _fetch(
        self,
        cache: Cache,
        key: Hashable,
        find: Callable[[], _Value],
        find_again: Callable[[], _Value] | None = None,
    ) -> _Value:
        self._transport.check_open()
        found: _Value | None = cache.get(key)
        if found is None:
            raise NotKnownError
        return found

    def _send(self, *_: Any, **__: Any) -> NoReturn:
        self._transport.check_open()
        raise NotKnownError


def _check_schema(schema: Any) -> None:
    """Raise TypeError if an argument is not a Schema. One of confluent_kafka is, too."""
    if hasattr(schema, "schema_str"):
        return
    words = f"schema: expected a Schema, got {type(schema).__name__}"
    if isinstance(schema, str):
        words += ': pass Schema(text, "AVRO"), or "JSON" or "PROTOBUF"'
    elif isinstance(schema, Mapping):
        words += ': pass Schema(json.dumps(schema), "AVRO"), or "JSON"'
    raise TypeError(words)


def _check_named(name: str, schema: Any) -> None:
    """Raise TypeError if an argument can name no schema."""
    if schema is None or isinstance(schema, str) or hasattr(schema, "schema_str"):
        return
    words = f"{name}: expected a Schema, its text or SUBJECT:VERSION, got {type(schema).__name__}"
    raise TypeError(words + (": pass json.dumps(schema)" if isinstance(schema, Mapping) else ""))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _page(offset: int, limit: int) -> dict[str, int | None]:
    """Return the query for a part of a list, without what is the default."""
    return {"offset": offset or None, "limit": limit if limit >= 0 else None}


def _config(subject_name: str | None) -> str:
    return "/config" if subject_name is None else f"/config/{_quoted(subject_name)}"


def _mode(content: Any) -> str:
    return str(content["mode"])
