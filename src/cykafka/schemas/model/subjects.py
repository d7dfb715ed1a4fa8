"""Subject name strategies: the subject that a record's schema belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any
from weakref import WeakSet

from cykafka._steps import Steps, arun, run
from cykafka.serialization import MessageField, SerializationContext, SerializationError

__all__ = [
    "FALLBACK_TYPE",
    "KAFKA_CLUSTER_ID",
    "STRATEGY_TYPE_MAP",
    "AssociatedNameStrategy",
    "AsyncAssociatedNameStrategy",
    "SubjectNameStrategyType",
    "record_subject_name_strategy",
    "reference_subject_name_strategy",
    "strategy_type",
    "topic_record_subject_name_strategy",
    "topic_subject_name_strategy",
]

# Keys of subject.name.strategy.conf.
KAFKA_CLUSTER_ID = "subject.name.strategy.kafka.cluster.id"
FALLBACK_TYPE = "subject.name.strategy.fallback.type"

_ANY_CLUSTER = "-"


def topic_subject_name_strategy(ctx: SerializationContext | None, record_name: str | None) -> str:
    """Return ``TOPIC-key`` or ``TOPIC-value``.

    Raises
    ------
    ValueError
        `ctx` is None.
    """
    return f"{_given(ctx, 'topic_subject_name_strategy').topic}-{ctx.field}"  # type: ignore[union-attr]


def topic_record_subject_name_strategy(
    ctx: SerializationContext | None, record_name: str | None
) -> str | None:
    """Return ``TOPIC-RECORD``, or None if the record has no name.

    Raises
    ------
    ValueError
        `ctx` is None.
    """
    topic = _given(ctx, "topic_record_subject_name_strategy").topic
    return None if record_name is None else f"{topic}-{record_name}"


def record_subject_name_strategy(
    ctx: SerializationContext | None, record_name: str | None
) -> str | None:
    """Return the record's name, which may be None."""
    return record_name


def reference_subject_name_strategy(
    ctx: SerializationContext | None, schema_ref: Any
) -> str | None:
    """Return the name of a file that a Protobuf schema imports."""
    return None if schema_ref is None else str(schema_ref.name)


def _given(ctx: SerializationContext | None, name: str) -> SerializationContext:
    if ctx is None:
        raise ValueError(f"{name} needs a SerializationContext")
    return ctx


class SubjectNameStrategyType(StrEnum):
    """The values of ``subject.name.strategy.type``."""

    NONE = "NONE"
    TOPIC = "TOPIC"
    RECORD = "RECORD"
    TOPIC_RECORD = "TOPIC_RECORD"
    ASSOCIATED = "ASSOCIATED"


STRATEGY_TYPE_MAP: dict[SubjectNameStrategyType, Callable[..., str | None]] = {
    SubjectNameStrategyType.TOPIC: topic_subject_name_strategy,
    SubjectNameStrategyType.RECORD: record_subject_name_strategy,
    SubjectNameStrategyType.TOPIC_RECORD: topic_record_subject_name_strategy,
}


def strategy_type(name: str, value: Any) -> SubjectNameStrategyType:
    """Return a configuration's strategy. Raise ValueError if it is not one."""
    try:
        return SubjectNameStrategyType(str(getattr(value, "value", value)).upper())
    except ValueError:
        known = ", ".join(each.value for each in SubjectNameStrategyType)
        raise ValueError(f"{name}: expected one of {known}, got {value!r}") from None


class _Associated:
    """The subject that the registry associates with a topic.

    cykafka's clients cache the registry's responses; for other clients this class does.
    """

    def __init__(self, cache_capacity: int = 1000) -> None:
        self._capacity = cache_capacity
        self._known: dict[tuple[str, bool, str | None], str] = {}
        self._clients: WeakSet[Any] = WeakSet()
        self._resolver: Callable[[], Any] | None = None
        self._cluster: str | None = None

    def _steps(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        client: Any,
        conf: Mapping[str, Any] | None = None,
    ) -> Steps[str | None]:
        """Find the subject, as described in the classes below."""
        ctx = _given(ctx, type(self).__name__)
        if ctx.topic is None:
            return None
        is_key = ctx.field == MessageField.KEY
        key = (ctx.topic, is_key, record_name)
        found = self._known.get(key)
        if found is not None:
            return found
        if client is None:
            return topic_subject_name_strategy(ctx, record_name)
        conf = conf or {}
        fallback = strategy_type(FALLBACK_TYPE, conf.get(FALLBACK_TYPE) or "TOPIC")
        if fallback is SubjectNameStrategyType.ASSOCIATED:
            raise ValueError(f"{FALLBACK_TYPE}: ASSOCIATED cannot be its own fallback")
        cluster = conf.get(KAFKA_CLUSTER_ID) or (yield from self._cluster_id())
        kind = "key" if is_key else "value"
        caches = hasattr(client, "associated_subjects")
        if caches:
            self._clients.add(client)
            subjects = yield client.associated_subjects(ctx.topic, cluster, kind)
        else:
            subjects = yield from _subjects(client, ctx.topic, cluster, kind)
        if len(subjects) > 1:
            raise SerializationError(f"the topic {ctx.topic} has {len(subjects)} subjects")
        if subjects:
            subject: str | None = subjects[0]
        elif fallback is SubjectNameStrategyType.NONE:
            raise SerializationError(f"the topic {ctx.topic} has no associated subject")
        else:
            subject = STRATEGY_TYPE_MAP[fallback](ctx, record_name)
        if subject is not None and not caches:
            if len(self._known) >= self._capacity:
                self._known.clear()
            self._known[key] = subject
        return subject

    def _clear(self) -> Steps[None]:
        """Forget the subjects, also those that clients cache."""
        self._known.clear()
        self._cluster = None
        for client in list(self._clients):
            yield client.clear_associations()

    def _set_resolver(self, resolver: Callable[[], Any]) -> None:
        self._resolver, self._cluster = resolver, None

    def _cluster_id(self) -> Steps[str]:
        if self._resolver is None:
            return _ANY_CLUSTER
        if self._cluster is not None:
            return self._cluster
        try:
            found = yield self._resolver()
        except Exception as error:
            raise SerializationError(
                f"cannot get the cluster's id; the brokers may be unreachable. Set "
                f"{KAFKA_CLUSTER_ID} to give it: {error}"
            ) from error
        if not found:
            raise SerializationError(f"the cluster has no id: set {KAFKA_CLUSTER_ID}")
        self._cluster = str(found)
        return self._cluster


def _subjects(client: Any, topic: str, cluster: str, kind: str) -> Steps[list[str]]:
    """Request the subjects that are associated with a topic from a client of another library."""
    try:
        found = yield client.get_associations_by_resource_name(
            resource_name=topic,
            resource_namespace=cluster,
            resource_type="topic",
            association_types=[kind],
            offset=0,
            limit=-1,
        )
    except Exception as error:
        # A registry without associations does not have the address.
        if getattr(error, "http_status_code", None) != 404:
            raise
        return []
    return [each.subject for each in found]


class AssociatedNameStrategy(_Associated):
    """Asks the registry which subject belongs to a topic.

    This is the default strategy. Without an association it continues with ``TOPIC``, or what
    ``subject.name.strategy.fallback.type`` says (``NONE``: an error). A SchemaRegistryClient
    caches the answers for ``cache.latest.ttl.sec``. A serializer keeps the subject of a topic that
    it has used.

    Parameters
    ----------
    cache_capacity : int, default 1000
        The number of answers to remember for a client of another library.
    """

    def set_cluster_id_resolver(self, resolver: Callable[[], str]) -> None:
        """Accept a function that returns the Kafka cluster's id, for the first question."""
        self._set_resolver(resolver)

    def __call__(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        schema_registry_client: Any,
        conf: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Return the subject, or None.

        Raises
        ------
        SerializationError
            The topic has several subjects; or none, and the fallback is ``NONE``.
        SchemaRegistryError
            The registry fails.
        """
        return run(self._steps(ctx, record_name, schema_registry_client, conf))

    def clear_cache(self) -> None:
        """Forget all answers, also those that the registry's clients cache."""
        run(self._clear())


class AsyncAssociatedNameStrategy(_Associated):
    """:class:`AssociatedNameStrategy` with an awaited client."""

    def set_async_cluster_id_resolver(self, resolver: Callable[[], Awaitable[str]]) -> None:
        """Accept a coroutine function that returns the Kafka cluster's id."""
        self._set_resolver(resolver)

    async def __call__(
        self,
        ctx: SerializationContext | None,
        record_name: str | None,
        schema_registry_client: Any,
        conf: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Return the subject, or None; see :class:`AssociatedNameStrategy`."""
        return await arun(self._steps(ctx, record_name, schema_registry_client, conf))

    async def clear_cache(self) -> None:
        """Forget all answers, also those that the registry's clients cache."""
        await arun(self._clear())
