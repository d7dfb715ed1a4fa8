"""Invalid arguments: odd values, and objects that misbehave when Python inspects them.

A test draws a `Value`: a name for the log, and a function that makes the object just before the
call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

import cykafka


class World:
    """The object whose methods are called. Arguments may close or change it."""

    def __init__(self) -> None:
        self.subject: Any = None

    def close(self) -> None:
        for name in ("close", "release"):
            if hasattr(self.subject, name):
                getattr(self.subject, name)()


world = World()


# -- objects that misbehave


def fail() -> None:
    raise ZeroDivisionError("asked")


ACTIONS: dict[str, Callable[[], Any]] = {
    "raises": fail,
    "closes": world.close,
    "collects": gc.collect,
    "inits": lambda: world.subject.__init__({}),
    "polls": lambda: world.subject.poll(0),
}


def trap_methods(action: Callable[[], Any]) -> dict[str, Any]:
    """Special methods that each run the action and then return a wrong value."""

    def answer(value: Any) -> Callable[..., Any]:
        def method(self: Any, *_: Any) -> Any:
            action()
            return value

        return method

    return {
        "__index__": answer(2**40), "__int__": answer(1), "__float__": answer(0.01),
        "__bool__": answer(True), "__str__": answer("text"), "__repr__": answer("text"),
        "__len__": answer(10_000), "__iter__": lambda self: (action(), iter([None, 5]))[1],
        "__contains__": answer(False), "__hash__": answer(1), "__eq__": answer(True),
        "__lt__": answer(True), "__ge__": answer(True), "__getitem__": answer(None),
        "__fspath__": answer("a\0b"), "__call__": answer(None), "items": answer([None, (1,)]),
        "keys": answer(["a", 5]), "get": answer(object()), "pop": answer(None),
        "encode": answer(5), "decode": answer(5), "topic": answer(5), "offset": answer("x"),
        "error": answer(5), "code": answer("x"), "log": answer(None),
    }  # fmt: skip


def trap(base: type, action: str, *args: Any) -> Any:
    methods = trap_methods(ACTIONS[action])
    if base is cykafka.TopicPartition:
        del methods["topic"], methods["offset"], methods["error"]
    if issubclass(base, str | bytes | list | dict | tuple | int):
        for name in ("__bool__", "__repr__"):
            del methods[name]
    return type("Trap", (base,), methods)(*args)


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


def self_containing() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


class Shrinking(list[Any]):
    """A list that loses its items during iteration."""

    def __iter__(self) -> Any:
        while self:
            yield self.pop()


class Liar:
    """An object that claims to be of another class."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    @property
    def __class__(self) -> Any:
        return self.cls


class Value(NamedTuple):
    """A future argument: its name in the log, and the function that makes it."""

    name: str
    make: Callable[[], Any]

    def __repr__(self) -> str:
        return self.name


def plain(value: Any) -> Value:
    text = repr(value)
    return Value(text if len(text) < 60 else f"{text[:40]}...{len(text)}", lambda: value)


NUMBERS = [
    0, 1, -1, -2, 5, 2**15, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63),
    -(2**63) - 1, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"), float("-inf"), True,
    3 + 4j,
]  # fmt: skip
TEXTS = [
    "", "t", "topic", "a\0b", "\ud800", "ü" * 300, "x" * 250, "x" * 100_000, "^t.*", "^(", "^",
    "-1", "true", "localhost:1", "group", "Produce",
]  # fmt: skip
BYTES = [b"", b"a\0b", b"\xff\xfe", b"x" * 100_000, bytearray(b"abc"), memoryview(b"abcdef")[::2]]
BASES: list[tuple[type, tuple[Any, ...]]] = [
    (object, ()), (str, ("t",)), (bytes, (b"t",)), (int, (1,)), (list, ([1, 2],)),
    (tuple, ([1, 2],)), (dict, ({"a": b"b"},)), (cykafka.TopicPartition, ("t", 0)),
    (cykafka.Message, ("t", 0, 0)),
    (cykafka.KafkaError, (3,)),
]  # fmt: skip
ODD = [
    Value("None", lambda: None),
    *map(plain, [*NUMBERS, *TEXTS, *BYTES]),
    Value("released memoryview", released),
    Value("list of itself", self_containing),
    Value("generator", lambda: (item for item in "ab")),
    Value("object()", object),
    Value("print", lambda: print),
    Value("lambda raising", lambda: lambda *_: fail()),
    Value("lambda closing", lambda: lambda *_: world.close()),
    Value("the object itself", lambda: world.subject),
    Value("KafkaError(3)", lambda: cykafka.KafkaError(3)),
    Value("Message()", cykafka.Message),
    Value("Message of t", lambda: cykafka.Message("t", 0, 2**63 - 1)),
    Value("Message with error", lambda: cykafka.Message("t", 0, 1, error=cykafka.KafkaError(3))),
    *(
        Value(f"{cls.__name__}.__new__()", lambda cls=cls: cls.__new__(cls))  # type: ignore[misc]
        for cls in (
            cykafka.TopicPartition, cykafka.Message, cykafka.KafkaError, cykafka.Uuid,
            cykafka.Producer, cykafka.Consumer,
        )
    ),
    *(
        Value(f"liar of {cls.__name__}", lambda cls=cls: Liar(cls))  # type: ignore[misc]
        for cls in (cykafka.TopicPartition, cykafka.Message, str, list, int, dict)
    ),
    *(
        Value(
            f"{base.__name__} that {action}",
            lambda base=base, action=action, args=args: trap(base, action, *args),  # type: ignore[misc]
        )
        for base, args in BASES
        for action in ACTIONS
    ),
]  # fmt: skip
odd = st.sampled_from(ODD)


@st.composite
def odd_partitions(draw: st.DrawFn) -> Value:
    args = (
        draw(st.sampled_from(["t", "topic", "nosuch", "", "x" * 249, "x" * 250, "a\0b", "^t"])),
        draw(st.sampled_from([0, 0, 1, -1, -2, 100, 2**31 - 1, -(2**31)])),
        draw(st.sampled_from([0, 1, -1, -2, -1000, -1001, -3, 10**9, 2**63 - 1, -(2**63)])),
        draw(st.sampled_from([None, "", "text", "a\0b", "m" * 10_000])),
        draw(st.sampled_from([None, 0, 5, -1, 2**31 - 1])),
    )
    return Value(f"TopicPartition{args!r}", lambda: cykafka.TopicPartition(*args))


@st.composite
def collections(draw: st.DrawFn) -> Value:
    """Lists and similar objects, with odd and valid items."""
    item = st.one_of(odd_partitions(), odd, pairs())
    items = draw(st.lists(item, max_size=4))
    if items and draw(st.booleans()):
        items.append(items[0])
    kind = draw(st.sampled_from([list, list, list, tuple, Shrinking, iter]))
    return Value(f"{kind.__name__}({items!r})", lambda: kind([item.make() for item in items]))


@st.composite
def pairs(draw: st.DrawFn) -> Value:
    name, value = draw(odd), draw(odd)
    return Value(f"({name}, {value})", lambda: (name.make(), value.make()))


@st.composite
def dicts(draw: st.DrawFn) -> Value:
    keys = st.one_of(
        st.sampled_from([*map(plain, ["value", "key", "headers", "partition", "timestamp", "a"])]),
        odd,
    )
    items = draw(st.lists(st.tuples(keys, odd), max_size=3))
    return Value(f"dict({items!r})", lambda: {key.make(): value.make() for key, value in items})


anything = st.one_of(odd, odd, odd_partitions(), collections(), pairs(), dicts())


def listed(items: list[Value]) -> Value:
    return Value(f"{items!r}", lambda: [item.make() for item in items])


# Values of the right type, but without sense.
partition_lists = st.builds(listed, st.lists(odd_partitions(), max_size=4)) | st.builds(
    lambda item, count: listed([item] * count), odd_partitions(), st.integers(1, 3)
)
scalars = st.sampled_from([*map(plain, [*NUMBERS, *TEXTS, *BYTES])])
callbacks = st.sampled_from([
    Value("None", lambda: None), Value("lambda", lambda: lambda *_: None),
    Value("lambda raising", lambda: lambda *_: fail()),
    Value("lambda closing", lambda: lambda *_: world.close()),
])  # fmt: skip

# Valid values by parameter name. A parameter with another name gets any value.
FAIR: dict[str, st.SearchStrategy[Value]] = {
    "topic": st.sampled_from([plain("t"), plain("topic")]),
    "topics": st.sampled_from([plain(["t"]), plain(["t", "t"]), plain(["^t"])]),
    "partition": st.one_of(
        st.sampled_from([plain(0), plain(-1), plain(2**31 - 1)]), odd_partitions()
    ),
    "partitions": partition_lists,
    "offsets": partition_lists,
    "positions": partition_lists,
    "messages": st.builds(listed, st.lists(dicts(), max_size=3)),
    "headers": st.sampled_from([plain([("name", b"value")]), plain({"name": None})]),
    "value": st.sampled_from([*map(plain, [b"value", "text", b"", bytearray(b"abc")])]),
    "key": st.sampled_from([*map(plain, [b"key", "text", b"", None])]),
    "timestamp": st.sampled_from([plain(0), plain(1), plain(2**63 - 1)]),
    "username": st.just(plain("user")),
    "password": st.just(plain("password")),
    "message": st.sampled_from([value for value in ODD if value.name.startswith("Message")]),
    "callback": callbacks,
    "on_delivery": callbacks,
    "on_assign": callbacks,
    "on_revoke": callbacks,
    "on_lost": callbacks,
    "timeout": st.sampled_from([plain(0), plain(0.001), plain(0.02)]),
    "group_metadata": st.builds(
        lambda cut, byte: Value(
            f"metadata cut at {cut}, {byte}", lambda: group_metadata(cut, byte)
        ),
        st.integers(0, 60),
        st.integers(0, 255),
    ),
    "num_messages": st.sampled_from([plain(0), plain(1), plain(1_000_000)]),
}
# By contract None, negative and large timeouts wait forever or as long. So they are not used here.
TIMEOUTS = st.one_of(
    st.sampled_from([*map(plain, [0, 0.001, 0.02, float("nan"), "1", b"1", 3 + 4j, True])]),
    st.sampled_from(
        [value for value in ODD if " that " in value.name and "int" not in value.name]
    ),
    collections(),
)


def group_metadata(cut: int, byte: int) -> bytes:
    with cykafka.Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"}) as consumer:
        metadata = bytearray(consumer.consumer_group_metadata())
    metadata[cut % len(metadata)] = byte
    return bytes(metadata[: len(metadata) - cut // 8])
