"""The caches of Schema Registry's clients, and how threads and tasks share requests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import linecache
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
from machine import WAIT_S

from cykafka.schemas import shared
from cykafka.schemas.model import cache
from cykafka.schemas.model.cache import Cache
from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError
from cykafka.schemas.model.schema import Schema
from cykafka.schemas.model.subjects import (
    FALLBACK_TYPE,
    AssociatedNameStrategy,
    AsyncAssociatedNameStrategy,
)
from cykafka.schemas.registry import transport
from cykafka.schemas.registry.aio import AsyncSchemaRegistryClient
from cykafka.schemas.registry.client import KnownSchemas, NotKnownError, SchemaRegistryClient
from cykafka.serialization import MessageField, SerializationContext
from cykafka.testing import SchemaRegistry

TEXT = '"string"'
SCHEMA = Schema(TEXT)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        made.add("a/value", TEXT)
        yield made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Move the caches' clock."""
    now = time.monotonic()

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    def move(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(cache, "time", Clock)
    return move


def made(registry: SchemaRegistry, **more: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url, "retries.wait.ms": 1, **more})


def test_schemas_are_requested_once(registry: SchemaRegistry) -> None:
    client = made(registry)
    for _ in range(3):
        client.get_schema(1)
        guid = client.get_version("a/value", 1).guid
        assert guid is not None
        client.get_schema_by_guid(guid)
        client.get_latest_version("a/value")
        client.lookup_schema("a/value", SCHEMA)
        client.register_schema("b/value", SCHEMA)
        client.document_by_id(1)

    assert registry.requests == {
        "GET /schemas/ids/1": 1,
        f"GET /schemas/guids/{guid}": 1,
        "GET /subjects/a%2Fvalue/versions/1": 1,
        "GET /subjects/a%2Fvalue/versions/latest": 1,
        "POST /subjects/a%2Fvalue": 1,
        "POST /subjects/b%2Fvalue/versions": 1,
    }
    client.clear_caches()
    client.get_schema(1)
    assert registry.requests["GET /schemas/ids/1"] == 2


@pytest.mark.parametrize(("ttl", "requests"), [(None, 1), ("60", 2), (0, 3)])
def test_latest_versions_expire(
    ttl: Any, requests: int, registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": ttl})
    for seconds in (59.0, 2.0, 0.0):
        client.get_latest_version("a/value")
        client.get_version("a/value", 1)
        clock(seconds)

    assert registry.requests["GET /subjects/a%2Fvalue/versions/latest"] == requests
    assert registry.requests["GET /subjects/a%2Fvalue/versions/1"] == 1
    client.clear_latest_caches()
    client.get_latest_version("a/value")
    assert registry.requests["GET /subjects/a%2Fvalue/versions/latest"] == requests + 1


@pytest.mark.parametrize(("ttl", "requests"), [(None, 1), (0, 2)])
def test_unknown_ids_are_remembered_for_a_short_time(
    ttl: Any, requests: int, registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": ttl})
    for find in (client.get_schema, client.document_by_id):
        for _ in range(2):
            with pytest.raises(SchemaNotFoundError, match="SR code 40403"):
                find(2)
    # The document's request is the schema's.
    assert registry.requests["GET /schemas/ids/2"] == (1 if requests == 1 else 4)
    registry.add("a/value", '"long"')
    clock(5.1)

    assert client.get_schema(2).schema_str == client.document_by_id(2).text == '"long"'


def test_an_own_registration_is_the_latest_version_at_once(registry: SchemaRegistry) -> None:
    client = made(registry)
    with pytest.raises(SchemaNotFoundError):
        client.get_latest_version("b-value")
    for schema in (Schema('"int"'), Schema('"long"')):
        client.register_schema("b-value", schema)
        assert client.get_latest_version("b-value").schema == schema
    client.delete_version("b-value", 2)
    assert client.get_latest_version("b-value").version == 1


def test_what_is_known_goes_on_without_the_registry(
    registry: SchemaRegistry, clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": 60})
    client.get_schema(1)
    client.get_latest_version("a/value")
    clock(61)
    registry.drop_next(1)

    assert client.get_schema(1) == SCHEMA
    for _ in range(2):
        assert client.get_latest_version("a/value").schema == SCHEMA
    assert registry.requests["GET /subjects/a%2Fvalue/versions/latest"] == 1 + 1
    assert "does not respond" in caplog.text
    registry.add("a/value", '"long"')
    clock(5.1)
    assert client.get_latest_version("a/value").version == 2
    registry.close()
    clock(61)
    assert client.get_latest_version("a/value").version == 2
    with pytest.raises(SchemaRegistryError, match="does not respond"):
        client.get_schema(2)


def test_a_deleted_subject_is_not_the_latest_version(
    registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": 60})
    client.get_latest_version("a/value")
    made(registry).delete_subject("a/value")
    clock(61)

    with pytest.raises(SchemaNotFoundError):
        client.get_latest_version("a/value")


def test_the_capacity_limits_each_cache(registry: SchemaRegistry) -> None:
    for number in range(3):
        registry.add("c-value", f'{{"type": "string", "n": {number}}}')
    client = made(registry, **{"cache.capacity": 2})
    for number in (2, 3, 2, 4, 2, 3):
        client.get_schema(number)

    counts = {number: registry.requests[f"GET /schemas/ids/{number}"] for number in (2, 3, 4)}
    assert counts == {2: 1, 3: 2, 4: 1}


def test_threads_share_a_request(registry: SchemaRegistry) -> None:
    client = made(registry)
    registry.delay_next(2, 0.3)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(client.get_schema, [1] * 16))
        assert found == [SCHEMA] * 16
        missing = [threads.submit(client.get_schema, 7) for _ in range(16)]

    assert registry.requests == {"GET /schemas/ids/1": 1, "GET /schemas/ids/7": 1}
    assert {type(each.exception()) for each in missing} == {SchemaNotFoundError}


def test_different_ids_do_not_wait_for_each_other(registry: SchemaRegistry) -> None:
    client = made(registry)
    other = registry.add("c-value", '"long"')
    client.get_schema(other)
    registry.delay_next(1, 60)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(client.get_schema, 1)
        while not registry.requests["GET /schemas/ids/1"]:
            time.sleep(0.01)
        assert client.get_schema(other).schema_str == '"long"'
        assert client.get_latest_version("c-value").schema_id == other
        registry.close()
        with pytest.raises(SchemaRegistryError):
            slow.result(60)


def test_an_interrupted_request_is_made_by_another_thread() -> None:
    values = Cache(10)
    started, waiting = threading.Event(), threading.Event()

    def interrupted() -> int:
        started.set()
        waiting.wait(10)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            values.fetch("key", interrupted)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first)
        started.wait(10)
        two = threads.submit(values.fetch, "key", lambda: 5)
        waiting.set()
        assert two.result(10) == 5
        one.result(10)


def test_an_interrupt_at_any_line_leaves_no_request_behind() -> None:
    names = {"fetch", "_share", "_request", "_end"}
    lines = 0

    def interrupted(values: Cache, after: int) -> bool:
        """Call `fetch`, with an interrupt before a line."""
        nonlocal lines
        lines = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal lines
            if frame.f_code.co_filename != cache.__file__ or frame.f_code.co_name not in names:
                return None
            text = linecache.getline(cache.__file__, frame.f_lineno).strip()
            # Python does not interrupt a thread between the last call in a block and its end.
            if event == "line" and not text.startswith(("with ", "finally:", "if mine.cancel()")):
                lines += 1
            if lines == after:
                sys.settrace(old)
                raise KeyboardInterrupt
            return trace

        old = sys.gettrace()
        sys.settrace(trace)
        try:
            values.fetch("key", lambda: 1)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(old)
        return False

    with ThreadPoolExecutor(1) as threads:
        after = 1
        while interrupted(values := Cache(10), after):
            assert threads.submit(values.fetch, "key", lambda: 2).result(10) in (1, 2)
            after += 1
    assert after > 20


def test_each_caller_gets_an_own_error(registry: SchemaRegistry) -> None:
    class Record:
        pass

    client = made(registry)

    def raised() -> tuple[SchemaNotFoundError, weakref.ref[Record]]:
        record = Record()
        try:
            raise KeyError
        except KeyError:
            with pytest.raises(SchemaNotFoundError) as raising:
                client.get_schema(9)
        return raising.value, weakref.ref(record)

    first, _ = raised()
    first.add_note("of the first caller")
    second, record = raised()
    assert first is not second
    assert str(first) == str(second)
    assert (second.http_status_code, second.error_code) == (404, 40403)
    assert not hasattr(second, "__notes__")
    del first, second
    gc.collect()
    assert record() is None

    client.clear_caches()
    registry.delay_next(1, 0.3)
    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(client.get_schema, 9) for _ in range(8)]
        errors = {call.exception() for call in calls}
    assert len(errors) == 8
    assert {type(each) for each in errors} == {SchemaNotFoundError}


def test_other_errors_are_not_shared() -> None:
    values = Cache(10, absent_ttl=60)
    with pytest.raises(ZeroDivisionError):
        values.fetch("key", lambda: 1 // 0)
    assert values.fetch("key", lambda: 5) == 5


def test_an_id_exists_after_an_own_registration(registry: SchemaRegistry) -> None:
    client = made(registry)
    for find in (client.get_schema, client.document_by_id):
        with pytest.raises(SchemaNotFoundError):
            find(2)
    assert client.register_schema("b-value", Schema('"long"')) == 2
    assert client.get_schema(2).schema_str == client.document_by_id(2).text == '"long"'


def test_an_expired_value_is_returned_while_a_thread_requests_it(
    clock: Callable[[float], None],
) -> None:
    values = Cache(10, 60)
    values.fetch("key", lambda: 1)
    clock(61)
    started, waiting = threading.Event(), threading.Event()

    def again() -> int:
        started.set()
        assert waiting.wait(10)
        return 2

    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(values.fetch, "key", lambda: 0, again)
        assert started.wait(10)
        assert values.fetch("key", lambda: 0) == values.get("key") == 1
        waiting.set()
        assert slow.result(10) == 2
    assert values.get("key") == 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_expired_value_is_requested_once(
    status: int, registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": 60})
    client.get_latest_version("a/value")
    clock(61)
    registry.fail_next(9, status)
    for _ in range(2):
        assert client.get_latest_version("a/value").version == 1
    assert registry.requests["GET /subjects/a%2Fvalue/versions/latest"] == 2


def test_an_expired_value_is_requested_with_a_short_timeout(
    registry: SchemaRegistry, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_URGENT_S", 0.2)
    client = made(registry, **{"cache.latest.ttl.sec": 60})
    client.get_latest_version("a/value")
    clock(61)
    registry.delay_next(1, 60)
    assert client.get_latest_version("a/value").version == 1


def test_a_response_to_a_request_before_a_clearing_is_not_kept() -> None:
    values = Cache(10)

    def find() -> int:
        values.clear()
        return 1

    assert values.fetch("key", find) == 1
    assert values.get("key") is None
    assert values.fetch("key", lambda: 2) == 2
    assert values.get("key") == 2


def test_known_schemas_send_no_requests(registry: SchemaRegistry) -> None:
    client = made(registry)
    known = KnownSchemas(client)
    for call in (lambda: known.get_schema(1), known.get_subjects):
        with pytest.raises(NotKnownError):
            call()
    client.get_schema(1)

    assert known.get_schema(1) == SCHEMA
    assert registry.requests.total() == 1
    client.close()
    with pytest.raises(RuntimeError, match="has been closed"):
        known.get_schema(1)


# -- asyncio


def test_tasks_share_a_request(registry: SchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            registry.delay_next(2, 0.2)
            found = await asyncio.gather(*(client.get_schema(1) for _ in range(50)))
            assert found == [SCHEMA] * 50
            wrong = await asyncio.gather(
                *(client.get_schema(7) for _ in range(50)), return_exceptions=True
            )
            assert {type(each) for each in wrong} == {SchemaNotFoundError}
        with pytest.raises(RuntimeError, match="has been closed"):
            await client.get_schema(1)

    asyncio.run(main())
    assert registry.requests == {"GET /schemas/ids/1": 1, "GET /schemas/ids/7": 1}


def test_requests_that_are_not_cached_are_not_shared(registry: SchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            registry.delay_next(1, 0.5)
            slow = asyncio.create_task(client.get_versions("a/value"))
            latest = asyncio.create_task(client.get_latest_version("a/value"))
            while registry.requests.total() < 2:
                await asyncio.sleep(0.01)
            await client.register_schema("a/value", Schema('{"type": "string", "doc": ""}'))
            assert await client.get_versions("a/value") == [1, 2]
            assert (await client.get_latest_version("a/value")).version == 2
            await asyncio.gather(slow, latest)
            assert (await client.get_latest_version("a/value")).version == 2

    asyncio.run(main())
    assert registry.requests["GET /subjects/a%2Fvalue/versions"] == 2


def test_tables_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    for name in ("decode_batch", "encode_table"):
        monkeypatch.setattr(
            f"cykafka.schemas.arrow.batches.{name}",
            lambda *_, **__: threads.append(threading.current_thread()),
        )

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": "http://localhost"}) as client:
            await client.decode_batch(None)
            await client.encode_table("t", None)

    asyncio.run(main())
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_a_cached_result_needs_no_thread(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        client = AsyncSchemaRegistryClient({"url": registry.url})
        await client.document_by_id(1)
        await client.get_latest_version("a/value")
        monkeypatch.setattr(asyncio, "to_thread", None)
        for coroutine in (client.document_by_id(1), client.get_latest_version("a/value")):
            with pytest.raises(StopIteration):
                coroutine.send(None)  # without a switch to the event loop

    asyncio.run(main())


def test_a_canceled_task_leaves_the_request_to_others(registry: SchemaRegistry) -> None:
    errors = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        client = AsyncSchemaRegistryClient({"url": registry.url})
        registry.delay_next(2, 0.3)
        first = asyncio.create_task(client.get_schema(1))
        second = asyncio.create_task(client.get_schema(1))
        alone = asyncio.create_task(client.get_schema(9))
        while registry.requests.total() < 2:
            await asyncio.sleep(0.01)
        first.cancel()
        alone.cancel()
        assert await second == SCHEMA
        assert first.cancelled()
        assert await client.get_schema(1) == SCHEMA
        with pytest.raises(SchemaNotFoundError):
            await client.get_schema(9)

    asyncio.run(main())
    assert registry.requests == {"GET /schemas/ids/1": 1, "GET /schemas/ids/9": 1}
    assert errors == []


def test_the_event_loop_runs_during_a_request(registry: SchemaRegistry) -> None:
    async def main() -> None:
        client = AsyncSchemaRegistryClient({"url": registry.url})
        registry.delay_next(1, 60)
        task = asyncio.create_task(client.register_schema("b-value", SCHEMA))
        while not registry.requests:
            await asyncio.sleep(0.01)
        registry.close()
        await client.aclose()
        with pytest.raises((SchemaRegistryError, RuntimeError)):
            await task

    asyncio.run(main())


def test_the_awaited_client_has_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    expected = methods(SchemaRegistryClient)
    found = methods(AsyncSchemaRegistryClient)

    assert {name: found.get(name) for name in expected} == expected
    assert found.keys() - expected.keys() == {"aclose", "run"}
    awaited = {
        name
        for name in expected
        if inspect.iscoroutinefunction(getattr(AsyncSchemaRegistryClient, name))
    }
    assert expected.keys() - awaited == {"config", "new_client"}
    assert AsyncSchemaRegistryClient.get_schema.__doc__ == SchemaRegistryClient.get_schema.__doc__


# -- associations


def associations(registry: SchemaRegistry) -> int:
    return registry.requests["GET /associations/resources/-/orders"]


ORDERS = SerializationContext("orders", MessageField.VALUE)


def test_strategies_share_the_clients_associations(
    registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": 60})
    first, second = AssociatedNameStrategy(), AssociatedNameStrategy()

    assert {first(ORDERS, None, client), second(ORDERS, None, client)} == {"orders-value"}
    assert associations(registry) == 1
    # The records of this fallback may have no subject.
    conf = {FALLBACK_TYPE: "RECORD"}
    assert [second(ORDERS, None, client, conf) for _ in range(2)] == [None, None]
    assert associations(registry) == 1

    registry.associate("orders", "all-orders")
    clock(59)
    assert first(ORDERS, None, client) == "orders-value"
    clock(1)
    assert {first(ORDERS, None, client), second(ORDERS, None, client)} == {"all-orders"}
    assert associations(registry) == 2

    for clear in (first.clear_cache, client.clear_latest_caches, client.clear_caches):
        clear()
        assert first(ORDERS, None, client) == "all-orders"
    assert associations(registry) == 5


def test_associations_outlive_the_registry(
    registry: SchemaRegistry, clock: Callable[[float], None]
) -> None:
    client = made(registry, **{"cache.latest.ttl.sec": 60, "max.retries": 0})
    strategy = AssociatedNameStrategy()
    strategy(ORDERS, None, client)
    registry.close()
    clock(61)

    assert strategy(ORDERS, None, client) == "orders-value"
    with pytest.raises(SchemaRegistryError):
        strategy(SerializationContext("others", MessageField.VALUE), None, client)


def test_awaited_strategies_share_the_clients_associations(registry: SchemaRegistry) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            for _ in range(2):
                strategy = AsyncAssociatedNameStrategy()
                assert await strategy(ORDERS, None, client) == "orders-value"
            assert associations(registry) == 1
            await strategy.clear_cache()
            assert await strategy(ORDERS, None, client) == "orders-value"
            assert associations(registry) == 2

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_while_a_shared_client_is_made_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, waiting = threading.Event(), threading.Event()

    def make(options: Any) -> str:
        if not entered.is_set():
            entered.set()
            waiting.wait(WAIT_S)
        return "client"

    monkeypatch.setattr(shared, "SchemaRegistryClient", make)
    monkeypatch.setattr(shared, "_clients", {})
    options = {"url": "http://nowhere:1"}
    thread = threading.Thread(target=shared.shared_client, args=(options,))
    thread.start()
    assert entered.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(shared.shared_client(options) != "client")
    _, status = os.waitpid(child, 0)
    waiting.set()
    thread.join()
    assert status == 0
