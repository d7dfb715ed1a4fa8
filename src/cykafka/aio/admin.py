"""AsyncAdminClient: administers a cluster from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, overload

from cykafka._core.client.call import list_topics
from cykafka._core.client.event_loop import watch
from cykafka.admin import AdminClient, ClusterMetadata, UserScramCredentialsDescription
from cykafka.aio._clients import AsyncWith, adapt_callbacks
from cykafka.aio._waiting import perform

# Type checkers see another base: an AdminClient's methods return futures of concurrent.futures.
if TYPE_CHECKING:
    from cykafka._core.admin.client import Admin as _Base

    _P = ParamSpec("_P")
    _K = TypeVar("_K")
    _V = TypeVar("_V")

    def _one(
        method: Callable[Concatenate[Any, _P], Future[_V]],
    ) -> Callable[Concatenate[Any, _P], asyncio.Future[_V]]: ...
    def _each(
        method: Callable[Concatenate[Any, _P], dict[_K, Future[_V]]],
    ) -> Callable[Concatenate[Any, _P], dict[_K, asyncio.Future[_V]]]: ...
else:
    _Base = AdminClient


class AsyncAdminClient(_Base, AsyncWith):
    """Administers topics, partitions, configurations, access rules, groups and users.

    The methods are those of :class:`cykafka.admin.AdminClient`, but their futures are asyncio
    futures. Await them::

        for topic, future in admin.create_topics([NewTopic("orders", 6)]).items():
            await future

    The event loop delivers the responses, without a thread. Call the methods only in coroutines.
    Canceling a future does not cancel the request.
    """

    if TYPE_CHECKING:
        create_topics = _each(AdminClient.create_topics)
        delete_topics = _each(AdminClient.delete_topics)
        create_partitions = _each(AdminClient.create_partitions)
        describe_topics = _each(AdminClient.describe_topics)
        list_offsets = _each(AdminClient.list_offsets)
        delete_records = _each(AdminClient.delete_records)
        elect_leaders = _one(AdminClient.elect_leaders)
        describe_configs = _each(AdminClient.describe_configs)
        alter_configs = _each(AdminClient.alter_configs)
        incremental_alter_configs = _each(AdminClient.incremental_alter_configs)
        create_acls = _each(AdminClient.create_acls)
        describe_acls = _one(AdminClient.describe_acls)
        delete_acls = _each(AdminClient.delete_acls)
        list_consumer_groups = _one(AdminClient.list_consumer_groups)
        describe_consumer_groups = _each(AdminClient.describe_consumer_groups)
        delete_consumer_groups = _each(AdminClient.delete_consumer_groups)
        list_consumer_group_offsets = _each(AdminClient.list_consumer_group_offsets)
        alter_consumer_group_offsets = _each(AdminClient.alter_consumer_group_offsets)
        delete_consumer_group_offsets = _each(AdminClient.delete_consumer_group_offsets)
        describe_cluster = _one(AdminClient.describe_cluster)
        alter_user_scram_credentials = _each(AdminClient.alter_user_scram_credentials)

        @overload
        def describe_user_scram_credentials(
            self, users: None = None, *, request_timeout: float | None = None
        ) -> asyncio.Future[dict[str, UserScramCredentialsDescription]]: ...
        @overload
        def describe_user_scram_credentials(
            self, users: list[str], *, request_timeout: float | None = None
        ) -> dict[str, asyncio.Future[UserScramCredentialsDescription]]: ...
        def describe_user_scram_credentials(self, *args: Any, **kwargs: Any) -> Any: ...

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        super().__init__(adapt_callbacks(config, kwargs))
        self._loop_watch = watch(self)
        self._loop_watch.stays = True
        self._serve_in_loop(self._loop_watch)

    def _send(self, request: Any, keys: Iterable[Any] | None, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        self._loop_watch.claim(loop)
        found: Any = super()._send(request, keys, **options)
        if isinstance(found, Future):
            return asyncio.wrap_future(found, loop=loop)
        return {key: asyncio.wrap_future(future, loop=loop) for key, future in found.items()}

    async def list_topics(  # type: ignore[override]  # awaitable here
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's brokers, topics and partitions.

        Parameters
        ----------
        topic : str, optional
            Only this topic.
        timeout : float, optional
            Seconds; forever by default.

        Raises
        ------
        KafkaException
            ``_TRANSPORT`` or ``_TIMED_OUT`` if no broker responded.
        """
        return await perform(list_topics(self, topic, timeout))

    def list_groups(self, group: str | None = None, timeout: float | None = -1) -> NoReturn:
        """Not available, because it would block the loop: use :meth:`list_consumer_groups`."""
        raise TypeError("list_groups() would block the event loop: use list_consumer_groups()")

    async def cluster_id(  # type: ignore[override]  # awaitable here
        self, timeout: float | None = None
    ) -> str | None:
        """Request the cluster's id, or None if the brokers report none. `timeout` is in s."""
        return (await self.list_topics(timeout=timeout)).cluster_id

    def poll(self, timeout: float | None = None) -> int:
        """Not needed: the event loop runs the callbacks."""
        raise TypeError("poll() would block the event loop, which runs the callbacks itself")

    async def close(  # type: ignore[override]  # awaitable here
        self, timeout: float | None = None
    ) -> bool:
        """Close the client at once. Futures without a response fail with ``_DESTROY``."""
        return super().close(0)

    def __enter__(self) -> Self:
        raise TypeError("use `async with`")
