"""Call the public names of the package with invalid arguments, in a separate process.

    python arguments.py GROUP EXAMPLES SEED LOG

`GROUP` is one of `groups()`. The script writes every call to `LOG` before it makes the call, so
that the parent knows which one crashed. The exit status is 0 if each call returned or raised an
ordinary exception in time. Handles live from one example to the next, because their state is part
of the test. So examples are not shrunk: the last lines of the log are the example.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import inspect
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from itertools import count as counting
from typing import Any

from hostile import FAIR, TIMEOUTS, Value, anything, odd, plain, scalars, world
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import cykafka
import cykafka.admin
import cykafka.error
from cykafka._core.client.handle import Handle
from cykafka.testing import MockCluster, live_handles

# A call that takes longer than this hangs, s.
PATIENCE_S = 10.0

# The excluded names, with the reason.
EXCLUDED = {
    "KafkaException.with_traceback": "Python's own",
}

# The special methods that our classes implement.
OPERATIONS = (
    "__bool__", "__contains__", "__enter__", "__eq__", "__exit__", "__ge__", "__getitem__",
    "__gt__", "__hash__", "__init__", "__iter__", "__le__", "__len__", "__lt__", "__ne__",
    "__reduce__", "__repr__", "__str__",
)  # fmt: skip


# -- callables


def public_classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module in (cykafka, cykafka.admin, cykafka.error):
        for name in getattr(module, "__all__", dir(module)):
            item = getattr(module, name)
            if isinstance(item, type) and not name.startswith("_"):
                found[name] = item
    found["MockCluster"] = MockCluster
    return found


def public_functions() -> dict[str, Callable[..., Any]]:
    return {
        name: getattr(cykafka, name)
        for name in cykafka.__all__
        if inspect.isroutine(getattr(cykafka, name))
    }


def methods_of(cls: type) -> list[str]:
    return [
        name
        for name in dir(cls)
        if (not name.startswith("_") or name in OPERATIONS)
        and f"{cls.__name__}.{name}" not in EXCLUDED
        and callable(getattr(cls, name))
    ]


servers: dict[str, Any] = {"log_level": 0}
# Each consumer has its own group, because the mock makes a new member wait for former ones.
group_numbers = counting()


def open_producer() -> Any:
    return cykafka.Producer({**servers, "linger.ms": 0, "message.timeout.ms": 300})


def open_transactional() -> Any:
    producer = cykafka.Producer({
        **servers, "transactional.id": "id", "transaction.timeout.ms": 1000,
        "message.timeout.ms": 300, "socket.timeout.ms": 1000,
    })  # fmt: skip
    producer.init_transactions(5)
    return producer


def open_consumer() -> Any:
    consumer = cykafka.Consumer({
        **servers, "group.id": f"group-{next(group_numbers)}", "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False, "session.timeout.ms": 6000,
    })  # fmt: skip
    consumer.assign([cykafka.TopicPartition("t", 0, 0)])
    return consumer


def open_serializing() -> Any:
    return cykafka.SerializingProducer({**servers, "linger.ms": 0, "message.timeout.ms": 300})


def open_deserializing() -> Any:
    consumer = cykafka.DeserializingConsumer({
        **servers, "group.id": f"group-{next(group_numbers)}", "session.timeout.ms": 6000,
    })  # fmt: skip
    consumer.assign([cykafka.TopicPartition("t", 0, 0)])
    return consumer


def open_share_consumer() -> Any:
    consumer = cykafka.ShareConsumer({**servers, "group.id": f"group-{next(group_numbers)}"})
    consumer.subscribe(["t"])
    return consumer


def open_deserializing_share_consumer() -> Any:
    consumer = cykafka.DeserializingShareConsumer(
        {**servers, "group.id": f"group-{next(group_numbers)}"}
    )
    consumer.subscribe(["t"])
    return consumer


# The consumer of the last batch stays alive, so that librdkafka still has the batch's records.
batch_sources: list[Any] = []


def open_batch() -> Any:
    while batch_sources:
        batch_sources.pop().close()
    with open_producer() as producer:
        for number in range(10):
            producer.produce(
                "t", str(number), partition=0, headers={"h": b"1"} if number else None
            )
    batch_sources.append(open_consumer())
    return batch_sources[-1].consume_batch(10, 5)


def open_admin() -> Any:
    return cykafka.admin.AdminClient({**servers, "socket.timeout.ms": 1000})


# Each object whose methods are called: its class, and a function that opens it.
HANDLES: dict[str, tuple[type, Callable[[], Any]]] = {
    "producer": (cykafka.Producer, open_producer),
    "transactional producer": (cykafka.Producer, open_transactional),
    "consumer": (cykafka.Consumer, open_consumer),
    "serializing producer": (cykafka.SerializingProducer, open_serializing),
    "deserializing consumer": (cykafka.DeserializingConsumer, open_deserializing),
    "share consumer": (cykafka.ShareConsumer, open_share_consumer),
    "deserializing share consumer": (
        cykafka.DeserializingShareConsumer,
        open_deserializing_share_consumer,
    ),
    "batch": (cykafka.MessageBatch, open_batch),
    "admin client": (cykafka.admin.AdminClient, open_admin),
    "mock cluster": (MockCluster, MockCluster),
}


def groups() -> list[str]:
    return [*HANDLES, "configurations", "values"]


def handle_classes() -> set[type]:
    return {cls for cls in public_classes().values() if issubclass(cls, Handle)}


# -- calls


@st.composite
def arguments(draw: st.DrawFn, function: Any) -> tuple[list[Value], dict[str, Value]]:
    """Arguments for a callable: usually the right number, of which at most two are odd."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return draw(st.lists(anything, max_size=3)), {}
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    victims = draw(st.sets(st.sampled_from(parameters), max_size=2)) if parameters else set()
    for parameter in parameters:
        is_odd = parameter in victims
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += draw(st.lists(anything, max_size=2))
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name == "timeout":
            value = draw(TIMEOUTS if is_odd else FAIR["timeout"])
        elif is_odd:
            value = draw(anything)
        elif parameter.default is not parameter.empty and draw(st.booleans()):
            continue
        else:
            value = draw(FAIR.get(parameter.name, anything))
        if parameter.kind is parameter.POSITIONAL_ONLY or (
            not kwargs and len(args) < 3 and parameter.default is parameter.empty
        ):
            args.append(value)
        else:
            kwargs[parameter.name] = value
    wrong = draw(st.integers(0, 60))
    if wrong == 0 and "timeout" not in kwargs:
        args = [*args, *draw(st.lists(anything, min_size=1, max_size=2))]
    elif wrong == 1:
        kwargs["no_such_argument"] = draw(odd)
    elif wrong == 2 and args:
        args.pop()
    elif wrong == 3 and parameters:
        kwargs.setdefault(parameters[0].name, draw(odd))
    return args, kwargs


class Caller:
    """Makes the calls and checks their outcome."""

    def __init__(self, log: str) -> None:
        self.log = open(log, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        self.calls = 0

    def call(
        self, name: str, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
    ) -> Any:
        self.log.write(f"{name}(*{args!r}, **{kwargs!r})\n")
        self.log.flush()
        self.calls += 1
        faulthandler.dump_traceback_later(3 * PATIENCE_S, exit=True)
        started = time.monotonic()
        try:
            return function(
                *(value.make() for value in args),
                **{key: value.make() for key, value in kwargs.items()},
            )
        except SystemError:
            self.stop(f"SystemError from {name}\n{traceback.format_exc()}")
        except Exception:
            return None
        finally:
            took = time.monotonic() - started
            faulthandler.cancel_dump_traceback_later()
            if took > PATIENCE_S:
                self.stop(f"{name} took {took:.1f} s")

    def stop(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)
        os._exit(3)


def examples(test: Any, count: int, number: int) -> None:
    """Run a test of hypothesis as a script: no database, no shrinking, a seed."""
    seed(number)(
        settings(
            max_examples=count, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(test)
    )()  # fmt: skip


def call_methods(
    caller: Caller, cls: type, make: Callable[[], Any], count: int, number: int
) -> None:
    """Call methods of one object, and make a new object once it is closed."""
    names = methods_of(cls)

    @given(st.data())
    def test(data: st.DataObject) -> None:
        state = repr(world.subject)
        if world.subject is None or not ("open" in state or "MessageBatch of" in state):
            world.subject = None
            world.subject = make()
        name = data.draw(st.sampled_from(names))
        method = getattr(world.subject, name)
        args, kwargs = data.draw(arguments(method))
        result = caller.call(f"{cls.__name__}.{name}", method, args, kwargs)
        if name == "__hash__" or result is None:
            return
        repr(result)

    examples(test, count, number)
    with contextlib.suppress(ZeroDivisionError):  # raised by a delivery callback of the test
        world.close()
    world.subject = None
    while batch_sources:
        batch_sources.pop().close()


def call_values(caller: Caller, count: int, number: int) -> None:
    """Make objects that carry data, and call their methods; call the module's functions."""
    classes = {
        name: cls
        for name, cls in public_classes().items()
        if cls is not MockCluster and not issubclass(cls, Handle)
    }
    functions = public_functions()

    @given(st.data())
    def test(data: st.DataObject) -> None:
        if data.draw(st.integers(0, 5)) == 0:
            name = data.draw(st.sampled_from(sorted(functions)))
            args, kwargs = data.draw(arguments(functions[name]))
            caller.call(name, functions[name], args, kwargs)
            return
        name = data.draw(st.sampled_from(sorted(classes)))
        cls = classes[name]
        args, kwargs = data.draw(arguments(cls))
        # Draw everything before the first call, because draws must not depend on outcomes.
        steps = [
            (method, *data.draw(arguments(getattr(cls, method))))
            for method in data.draw(st.lists(st.sampled_from(methods_of(cls)), max_size=4))
        ]
        made = caller.call(name, cls, args, kwargs)
        if made is None:
            made = caller.call(f"{name}.__new__", lambda: cls.__new__(cls), [], {})
        world.subject = made
        for method, args, kwargs in steps:
            if hasattr(made, method):
                caller.call(f"{name}.{method}", getattr(made, method), args, kwargs)

    examples(test, count, number)
    world.subject = None


def call_configurations(caller: Caller, count: int, number: int) -> None:
    """Make clients with odd configurations, and close them at once."""
    from cykafka._core.common import config as _config

    # The first loads code. The second sends the process a signal when a client ends.
    unwanted = {"plugin.library.paths", "internal.termination.signal"}
    names = sorted(set(_config.known_properties()) - unwanted) + list(_config.OWN_KEYS)
    fair = {**servers, "group.id": "group"}

    @given(st.data())
    def test(data: st.DataObject) -> None:
        cls = data.draw(st.sampled_from(sorted(handle_classes(), key=lambda cls: cls.__name__)))
        if data.draw(st.integers(0, 9)) == 0:
            args, kwargs = data.draw(arguments(cls))
        else:
            keys = st.one_of(st.sampled_from([*map(plain, names)]), odd)
            items = data.draw(
                st.lists(st.tuples(keys, st.one_of(scalars, scalars, anything)), max_size=3)
            )
            config = Value(
                f"config {items!r}",
                lambda: {**fair, **{key.make(): value.make() for key, value in items}},
            )
            args, kwargs = [config], {}
        world.subject = cls.__new__(cls)
        caller.call(f"{cls.__name__}.__init__", world.subject.__init__, args, kwargs)
        caller.call(f"{cls.__name__}.close", world.subject.close, [], {})

    examples(test, count, number)
    world.subject = None


def main() -> int:
    group, count, number, log = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    warnings.simplefilter("ignore")
    faulthandler.enable()
    caller = Caller(log)
    with MockCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        servers["bootstrap.servers"] = cluster.bootstrap_servers
        for topic in ("t", "topic"):
            cluster.create_topic(topic, 2)
        if group in HANDLES:
            call_methods(caller, *HANDLES[group], count, number)
        elif group == "configurations":
            call_configurations(caller, count // 3, number)
        else:
            call_values(caller, count, number)
    gc.collect()
    deadline = time.monotonic() + PATIENCE_S
    while left := {kind: alive for kind, alive in live_handles().items() if alive}:
        # A thread may still destroy a consumer whose close() had a short timeout.
        if time.monotonic() > deadline:
            caller.stop(f"left alive: {left}")
        time.sleep(0.01)
    print(f"{caller.calls} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
