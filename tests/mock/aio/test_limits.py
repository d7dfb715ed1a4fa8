"""The clients of cykafka.aio without threads, without descriptors, and beside the collector."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest
from fixture_types import RunScript
from machine import WAIT_S

from cykafka.aio import AsyncProducer

pytestmark = pytest.mark.ours

# Functions of the scripts that run with few descriptors.
FILL = """
    import asyncio, os, resource, sys
    from cykafka.admin import AdminClient, OffsetSpec
    from cykafka.aio import AsyncAdminClient, AsyncProducer

    def fill():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
        files = []
        while True:
            try:
                files.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                return files

    def free(files):
        while files:
            os.close(files.pop())
    """


@pytest.mark.usefixtures("no_threads")
def test_close_without_threads_raises_and_lets_the_other_tasks_run(
    unreachable: dict[str, Any], run_script: RunScript
) -> None:
    done = run_script(
        """
        import asyncio, os, pathlib, sys, time
        from cykafka.aio import AsyncProducer
        from cykafka.testing import live_handles

        async def main():
            ticks = []

            async def tick():
                while True:
                    ticks.append(time.perf_counter())
                    await asyncio.sleep(0.01)

            producer = AsyncProducer({"bootstrap.servers": sys.argv[1], "log_level": 2})
            future = producer.produce("any", "a")
            ticking = asyncio.create_task(tick())
            await asyncio.sleep(0.05)
            pathlib.Path(os.environ["NO_THREADS"]).touch()
            try:
                await producer.close()
            except kafka.KafkaException as error:
                print(error.args[0].name())
            try:
                await future
            except kafka.KafkaException as error:
                print(error.args[0].name())
            ticks.append(time.perf_counter())
            print("closed" in repr(producer), max(b - a for a, b in zip(ticks, ticks[1:])) < 5,
                  live_handles()["handles"])

        asyncio.run(main())
        """,
        unreachable["bootstrap.servers"],
    )
    name, outcome, *others = done.stdout.split()
    assert name == "_CRIT_SYS_RESOURCE", done.stderr
    assert outcome in ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
    assert others == ["True", "True", "0"]


def test_produce_without_a_descriptor_raises_and_works_again(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        FILL
        + """
    async def main():
        producer = AsyncProducer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
        kafka.Producer.list_topics(producer._producer, sys.argv[2], 30)  # connects
        files = fill()
        os.close(files.pop())  # a pipe needs two
        try:
            producer.produce(sys.argv[2], "a")
        except OSError as error:
            print(error.strerror, len(producer))
        free(files)
        print((await producer.produce(sys.argv[2], "a")).error())
        await producer.close()

    asyncio.run(main())
    """,
        cluster.bootstrap_servers,
        topic,
    )
    assert done.stdout == "Too many open files 0\nNone\n", done.stderr


def test_admin_request_without_a_descriptor_raises_and_the_client_closes(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        FILL
        + """
    async def main():
        async with AsyncAdminClient({"bootstrap.servers": sys.argv[1]}) as admin:
            AdminClient.list_topics(admin, timeout=30)  # connects
            request = {kafka.TopicPartition(sys.argv[2], 0): OffsetSpec.latest()}
            files = fill()
            try:
                admin.list_offsets(request)
            except OSError as error:
                print(error.strerror)
            free(files)
            for future in admin.list_offsets(request).values():
                print((await future).offset)

    asyncio.run(main())
    print("closed")
    """,
        cluster.bootstrap_servers,
        topic,
    )
    assert done.stdout == "Too many open files\n0\nclosed\n", done.stderr


# A recorded warning would keep the producer.
@pytest.mark.filterwarnings("ignore:.*was never closed")
def test_garbage_collector_frees_what_awaits_a_dropped_record(
    slow: dict[str, Any], topic: str
) -> None:
    class Held:
        pass

    kept: list[weakref.ref[Held]] = []

    async def wait(future: asyncio.Future[Any], held: Held) -> None:
        await future

    async def main() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        asyncio.create_task(  # noqa: RUF006
            wait(AsyncProducer(slow).produce(topic, "a"), held)
        )
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"
    loop.run_until_complete(main())
    deadline = time.monotonic() + WAIT_S
    while kept[0]() is not None and time.monotonic() < deadline:
        loop.run_until_complete(asyncio.sleep(0.01))
        gc.collect()
    loop.close()
    assert kept[0]() is None
