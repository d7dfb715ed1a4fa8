"""AsyncAdminClient: administers a cluster from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from cykafka.admin import AdminClient, ClusterMetadata
from cykafka.aio._callbacks import adapted
from cykafka.aio._waiting import perform
from cykafka.internal import list_topics, watch


class AsyncAdminClient(AdminClient):
    """Administers topics, partitions, configurations, access rules, groups and users.

    Its methods are those of :class:`cykafka.admin.AdminClient`. Their futures are asyncio's, so
    await them::

        for topic, future in admin.create_topics([NewTopic("orders", 6)]).items():
            await future

    The event loop delivers the answers, so there is no thread. Make requests in coroutines only.
    Canceling a future does not take the request back.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(adapted(args, kwargs))
        self._loop_watch = watch(self)
        self._loop_watch.stays = True
        self._serve_in_loop(self._loop_watch)

    def _ask(self, request: Any, keys: Iterable[Any] | None, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        found: Any = super()._ask(request, keys, **options)
        if isinstance(found, Future):
            return self._awaitable(found, loop)
        return {key: self._awaitable(future, loop) for key, future in found.items()}

    def _awaitable(
        self, future: Future[Any], loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Any]:
        self._loop_watch.add(loop)
        awaitable = asyncio.wrap_future(future, loop=loop)
        awaitable.add_done_callback(lambda _: self._loop_watch.remove(loop))
        return awaitable

    async def list_topics(  # type: ignore[override]
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
            ``_TRANSPORT`` or ``_TIMED_OUT`` if no broker answered.
        """
        return await perform(list_topics(self, topic, timeout))

    def list_groups(self, *args: Any, **kwargs: Any) -> Any:
        """Not available, because it would block the loop: use :meth:`list_consumer_groups`."""
        raise TypeError("list_groups() would block the event loop: use list_consumer_groups()")

    async def cluster_id(self, timeout: float | None = None) -> str | None:  # type: ignore[override]
        """Request the cluster's id; None if the brokers have none. `timeout` is in s."""
        return (await self.list_topics(timeout=timeout)).cluster_id

    def poll(self, timeout: float | None = None) -> int:
        """Not needed: the event loop runs the callbacks."""
        raise TypeError("poll() would block the event loop, which runs the callbacks itself")

    async def close(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Close the client at once. Futures without an answer fail with ``_DESTROY``."""
        return super().close(0)

    def __enter__(self) -> Self:
        raise TypeError("use `async with`")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()
