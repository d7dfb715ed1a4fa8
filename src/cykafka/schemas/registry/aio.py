"""The Schema Registry client for asyncio."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from cykafka.schemas.registry.client import KnownSchemas, NotKnownError, SchemaRegistryClient

__all__ = ["AsyncSchemaRegistryClient"]

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def _awaited(
    method: Callable[Concatenate[SchemaRegistryClient, _Arguments], _Value],
    *,
    in_thread: bool = False,
) -> Callable[Concatenate[AsyncSchemaRegistryClient, _Arguments], Coroutine[Any, Any, _Value]]:
    @functools.wraps(method)
    async def call(
        self: AsyncSchemaRegistryClient, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Value:
        if in_thread:  # the work would block the event loop, even if all schemas are known
            return await asyncio.to_thread(method, self._client, *args, **kwargs)
        return await self.run(method, *args, **kwargs)

    return call


class AsyncSchemaRegistryClient:
    """A `SchemaRegistryClient` whose methods are awaited.

    A cached result needs no thread. A request, `decode_batch` and `encode_table` run in one of the
    event loop's threads (`asyncio.to_thread`). If several tasks need the same schema, they share
    the request. A canceled task leaves its request running, and the client keeps the response:
    `asyncio.run` waits for it before it returns, up to ``timeout`` and the retries. `aclose()`
    ends the retries.

    Parameters
    ----------
    conf : mapping
        As for `SchemaRegistryClient`.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._client = SchemaRegistryClient(conf)
        self._known = KnownSchemas(self._client)

    @staticmethod
    def new_client(conf: Mapping[str, Any]) -> AsyncSchemaRegistryClient:
        """Return a client."""
        return AsyncSchemaRegistryClient(conf)

    async def __aenter__(self) -> AsyncSchemaRegistryClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client, as `SchemaRegistryClient.close` does."""
        self._client.close()

    close = aclose

    def config(self) -> Mapping[str, Any]:
        """Return the options, as given."""
        return self._client.config()

    async def run(
        self,
        function: Callable[Concatenate[SchemaRegistryClient, _Arguments], _Value],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Value:
        """Return ``function(client, *args, **kwargs)`` without blocking the event loop.

        Parameters
        ----------
        function : callable
            It gets a client with the cached results first. If these do not suffice, it is called
            again in a thread, with a client that sends requests.
        *args, **kwargs
            Its other arguments.
        """
        try:
            return function(self._known, *args, **kwargs)
        except NotKnownError:
            pass
        return await asyncio.to_thread(function, self._client, *args, **kwargs)

    get_schema = _awaited(SchemaRegistryClient.get_schema)
    get_schema_by_guid = _awaited(SchemaRegistryClient.get_schema_by_guid)
    get_schema_types = _awaited(SchemaRegistryClient.get_schema_types)
    get_subjects_by_schema_id = _awaited(SchemaRegistryClient.get_subjects_by_schema_id)
    get_schema_versions = _awaited(SchemaRegistryClient.get_schema_versions)
    register_schema = _awaited(SchemaRegistryClient.register_schema)
    register_schema_full_response = _awaited(SchemaRegistryClient.register_schema_full_response)
    lookup_schema = _awaited(SchemaRegistryClient.lookup_schema)
    get_subjects = _awaited(SchemaRegistryClient.get_subjects)
    delete_subject = _awaited(SchemaRegistryClient.delete_subject)
    get_latest_version = _awaited(SchemaRegistryClient.get_latest_version)
    get_latest_with_metadata = _awaited(SchemaRegistryClient.get_latest_with_metadata)
    get_version = _awaited(SchemaRegistryClient.get_version)
    get_referenced_by = _awaited(SchemaRegistryClient.get_referenced_by)
    get_versions = _awaited(SchemaRegistryClient.get_versions)
    delete_version = _awaited(SchemaRegistryClient.delete_version)
    get_contexts = _awaited(SchemaRegistryClient.get_contexts)
    get_associations_by_resource_name = _awaited(
        SchemaRegistryClient.get_associations_by_resource_name
    )
    associated_subjects = _awaited(SchemaRegistryClient.associated_subjects)
    test_compatibility = _awaited(SchemaRegistryClient.test_compatibility)
    test_compatibility_all_versions = _awaited(
        SchemaRegistryClient.test_compatibility_all_versions
    )
    find_incompatibilities = _awaited(SchemaRegistryClient.find_incompatibilities)
    set_compatibility = _awaited(SchemaRegistryClient.set_compatibility)
    get_compatibility = _awaited(SchemaRegistryClient.get_compatibility)
    set_config = _awaited(SchemaRegistryClient.set_config)
    get_config = _awaited(SchemaRegistryClient.get_config)
    delete_config = _awaited(SchemaRegistryClient.delete_config)
    get_mode = _awaited(SchemaRegistryClient.get_mode)
    update_mode = _awaited(SchemaRegistryClient.update_mode)
    delete_mode = _awaited(SchemaRegistryClient.delete_mode)
    get_global_mode = _awaited(SchemaRegistryClient.get_global_mode)
    update_global_mode = _awaited(SchemaRegistryClient.update_global_mode)
    clear_latest_caches = _awaited(SchemaRegistryClient.clear_latest_caches)
    clear_associations = _awaited(SchemaRegistryClient.clear_associations)
    clear_caches = _awaited(SchemaRegistryClient.clear_caches)
    document_by_id = _awaited(SchemaRegistryClient.document_by_id)
    document_by_version = _awaited(SchemaRegistryClient.document_by_version)
    document = _awaited(SchemaRegistryClient.document)
    decode_batch = _awaited(SchemaRegistryClient.decode_batch, in_thread=True)
    encode_table = _awaited(SchemaRegistryClient.encode_table, in_thread=True)
