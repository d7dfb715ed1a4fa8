"""A client of a registry in this process, with the methods that serializers call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError
from cykafka.schemas.model.schema import RegisteredSchema, Schema


class MemoryRegistry:
    """The registry and its client.

    Attributes
    ----------
    calls : Counter
        The calls by name.
    associations : dict of str to list of str
        The subjects of topics.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.associations: dict[str, list[str]] = {}
        self.cluster = ""
        self._schemas: list[Schema] = []
        self._subjects: dict[str, list[int]] = {}

    def add(self, subject: str, text: str, kind: str = "AVRO", **kwargs: Any) -> int:
        """Register a schema and return its id."""
        return self._register(subject, Schema(text, kind, **kwargs)).schema_id or 0

    def subjects(self) -> dict[str, list[int]]:
        """The ids of each subject's versions."""
        return self._subjects

    def guid(self, number: int) -> str:
        """A schema's GUID."""
        return str(uuid5(NAMESPACE_URL, str(number)))

    def _register(self, subject: str, schema: Schema) -> RegisteredSchema:
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self._found(subject, number)

    def _found(self, subject: str, number: int) -> RegisteredSchema:
        version = self._subjects[subject].index(number) + 1
        schema = self._schemas[number - 1]
        return RegisteredSchema(subject, version, number, self.guid(number), schema)

    def _missing(self, words: str) -> SchemaRegistryError:
        return SchemaNotFoundError(404, 40403, words)

    def register_schema_full_response(
        self, subject_name: str, schema: Any, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        self.calls["register"] += 1
        return self._register(subject_name, schema)

    def register_schema(
        self, subject_name: str, schema: Any, normalize_schemas: bool = False
    ) -> int:
        self.calls["register"] += 1
        return self._register(subject_name, schema).schema_id or 0

    def lookup_schema(
        self,
        subject_name: str,
        schema: Any,
        normalize_schemas: bool = False,
        fmt: str | None = None,
        deleted: bool = False,
    ) -> RegisteredSchema:
        self.calls["lookup"] += 1
        if schema in self._schemas:
            number = self._schemas.index(schema) + 1
            if number in self._subjects.get(subject_name, ()):
                return self._found(subject_name, number)
        raise self._missing("Schema not found")

    def get_schema(
        self, schema_id: int, subject_name: str | None = None, fmt: str | None = None
    ) -> Schema:
        self.calls["get"] += 1
        if not 1 <= schema_id <= len(self._schemas):
            raise self._missing(f"Schema {schema_id} not found")
        return self._schemas[schema_id - 1]

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        self.calls["guid"] += 1
        for number, schema in enumerate(self._schemas):
            if self.guid(number + 1) == guid:
                return schema
        raise self._missing(f"Schema {guid} not found")

    def get_version(
        self, subject_name: str, version: Any, deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        self.calls["version"] += 1
        return self._found(subject_name, self._subjects[subject_name][int(version) - 1])

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        self.calls["latest"] += 1
        if subject_name not in self._subjects:
            raise self._missing("Subject not found")
        return self._found(subject_name, self._subjects[subject_name][-1])

    def get_latest_with_metadata(
        self,
        subject_name: str,
        metadata: Mapping[str, str],
        deleted: bool = False,
        fmt: str | None = None,
    ) -> RegisteredSchema:
        self.calls["metadata"] += 1
        for number in reversed(self._subjects[subject_name]):
            given = (self._schemas[number - 1].metadata or {}).get("properties", {})
            if metadata.items() <= given.items():
                return self._found(subject_name, number)
        raise self._missing("Schema not found")

    def get_associations_by_resource_name(
        self, resource_name: str, resource_namespace: str, **_: Any
    ) -> list[Any]:
        self.calls["associations"] += 1
        self.cluster = resource_namespace
        if resource_name not in self.associations:
            raise self._missing("HTTP 404 Not Found")
        return [SimpleNamespace(subject=name) for name in self.associations[resource_name]]

    def close(self) -> None:
        self.calls["close"] += 1


class AsyncMemoryRegistry:
    """The same client with coroutines."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._registry, "close" if name == "aclose" else name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return method(*args, **kwargs)

        return call
