"""oauth_cb: where the first token comes from.

The mock does not support SASL. So the tests cover only the callback and the constructor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fixture_types import MakeProducer, RunScript, WaitUntil

CONFIG = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanisms": "OAUTHBEARER",
    "group.id": "g",
}


@pytest.fixture
def make(kafka: Any) -> Iterator[Callable[..., Any]]:
    made = []

    def make(kind: str, oauth_cb: Callable[[str], Any], **config: Any) -> Any:
        client = getattr(kafka, kind)({**CONFIG, "oauth_cb": oauth_cb, **config})
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_constructor_requests_a_token(make: Callable[..., Any], kind: str) -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", time.time() + 3600

    make(kind, token, **{"sasl.oauthbearer.config": "principal=me"})

    # No call to poll was needed: the callback runs on librdkafka's own thread.
    assert asked == ["principal=me"]


def test_token_may_come_with_principal_and_extensions(make: Callable[..., Any]) -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float, str, dict[str, str]]:
        asked.append(config)
        return "token", time.time() + 3600, "me", {"tenant": "blue"}

    make("Producer", token)

    assert len(asked) == 1  # librdkafka would have requested a refused token again


def test_token_is_refreshed_before_it_expires(
    make: Callable[..., Any], wait_until: WaitUntil
) -> None:
    asked: list[float] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(time.monotonic())
        return "token", time.time() + 2

    make("Producer", token)

    wait_until(lambda: len(asked) >= 2)


def test_failed_refresh_that_succeeds_later_is_only_reported(
    make: Callable[..., Any], wait_until: WaitUntil
) -> None:
    asked: list[float] = []
    reported: list[Any] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(time.monotonic())
        if len(asked) == 2:
            raise LookupError("no token now")
        return "token", time.time() + (2 if len(asked) == 1 else 3600)

    producer = make("Producer", token, error_cb=reported.append)
    wait_until(lambda: len(asked) >= 3)  # librdkafka tries again after 10 s

    producer.poll(0)
    assert any("LookupError: no token now" in str(error) for error in reported)
    producer.close()


def test_constructor_without_a_token_fails(kafka: Any) -> None:
    def complain(config: str) -> None:
        raise LookupError("no token today")

    callbacks: list[Callable[[str], Any]] = [
        complain,
        lambda config: 3,
        lambda config: ("token", "not a time"),
        lambda config: ("token", 1.0),
    ]

    def error_of(oauth_cb: Callable[[str], Any]) -> Any:
        with pytest.raises(kafka.KafkaException) as caught:
            kafka.Producer({**CONFIG, "oauth_cb": oauth_cb})
        return caught.value.args[0]

    # Each may wait for ten seconds, so they run concurrently.
    with ThreadPoolExecutor(len(callbacks)) as pool:
        errors = list(pool.map(error_of, callbacks))

    assert errors == [kafka.KafkaError.SASL_AUTHENTICATION_FAILED] * len(callbacks)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.ours
@pytest.mark.parametrize(
    ("token", "words"),
    [
        (("hush\udc80hush", None), "oauth_cb: token: the character at index 4"),
        (("hush\0hush", None), "the token cannot contain a NUL"),
        (("t", None, 5), "expected a str as principal, got int"),
        (("t", None, "me", {"tenant": 5}), "expected a str as extension, got int"),
        (("t", None, "me", {"tenant": "hush\0hush"}), "the extension cannot contain a NUL"),
        (("t", None, "me", {"tenant": "hush\udc80"}), "extension: the character at index 4"),
        (("t", None, "me", {"tenant": "hush\x7f"}), "oauth_cb: "),
        (Unprintable(), "oauth_cb failed: Unprintable"),
    ],
    ids=["surrogate", "nul", "principal", "type", "extension-nul", "extension-surrogate",
         "extension", "unprintable"],
)  # fmt: skip
def test_wrong_token_fails_at_once_and_is_not_shown(kafka: Any, token: Any, words: str) -> None:
    def oauth_cb(config: str) -> Any:
        if isinstance(token, Exception):
            raise token
        return (token[0], time.time() + 3600, *token[2:])

    began = time.monotonic()
    with pytest.raises(kafka.KafkaException) as caught:
        kafka.Producer({**CONFIG, "oauth_cb": oauth_cb})

    assert time.monotonic() - began < 5
    assert words in caught.value.args[0].str()
    seen: BaseException | None = caught.value
    while seen is not None:
        assert "hush" not in repr(seen)
        seen = seen.__cause__ or seen.__context__


@pytest.mark.ours
def test_constructor_error_has_the_exception_of_the_callback(kafka: Any) -> None:
    def complain(config: str) -> None:
        raise LookupError("no token today")

    with pytest.raises(kafka.KafkaException) as caught:
        kafka.Producer({**CONFIG, "oauth_cb": complain})

    assert caught.value.args[0] == kafka.KafkaError.SASL_AUTHENTICATION_FAILED
    assert "no token today" in caught.value.args[0].str()


@pytest.mark.ours
def test_interrupted_constructor_does_not_wait_for_the_callback(run_script: RunScript) -> None:
    done = run_script(
        """
import os, signal, threading, time
leave = threading.Event()
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext",
                    "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": lambda _: leave.wait(20)})
except KeyboardInterrupt:
    print("interrupted", leave.is_set())
leave.set()
"""
    )

    assert (done.returncode, done.stdout) == (0, "interrupted False\n"), done.stderr


@pytest.mark.ours
@pytest.mark.parametrize("which", ["its own", "another"])
def test_callback_cannot_close_a_client(
    make: Callable[..., Any], make_producer: MakeProducer, wait_until: WaitUntil, which: str
) -> None:
    clients = [make_producer()]
    refused: list[RuntimeError] = []

    def token(config: str) -> tuple[str, float]:
        if len(clients) == 2:  # else the constructor still runs
            try:
                clients[which == "its own"].close()
            except RuntimeError as error:
                refused.append(error)
        return "token", time.time() + 2

    clients.append(make("Producer", token))

    wait_until(lambda: refused)
    assert "close() cannot be called from oauth_cb" in str(refused[0])
    assert all("open" in repr(client) for client in clients)


@pytest.mark.ours
def test_callback_may_drop_the_last_reference_to_its_client(run_script: RunScript) -> None:
    done = run_script(
        """
import threading, time, warnings
from cykafka.testing import live_handles
warnings.simplefilter("ignore", ResourceWarning)
clients, dropped = [], threading.Event()

def token(config):
    if clients:
        clients.clear()
        dropped.set()
    return "token", time.time() + 2

clients.append(kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0,
                               "security.protocol": "sasl_plaintext",
                               "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}))
assert dropped.wait(20)
while live_handles()["handles"]:
    time.sleep(0.01)
print("gone")
"""
    )

    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr


@pytest.mark.ours
def test_interpreter_may_end_while_a_consumer_waits_for_its_first_token(
    run_script: RunScript,
) -> None:
    # The exit closes the consumer while its constructor still runs in a daemon thread.
    done = run_script(
        """
import threading, time
asked = threading.Event()

def token(config):
    asked.set()
    time.sleep(0.5)
    return "token", time.time() + 3600

def make():
    kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0,
                    "security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER",
                    "oauth_cb": token})

threading.Thread(target=make, daemon=True).start()
assert asked.wait(20)
"""
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.ours
def test_second_init_after_a_failed_one_drops_the_first_oauth_cb(kafka: Any) -> None:
    client = kafka.Producer.__new__(kafka.Producer)
    with pytest.raises(kafka.KafkaException):
        client.__init__({"oauth_cb": lambda _: ("token", 0), "no.such": 1})

    client.__init__({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})

    client.close()
