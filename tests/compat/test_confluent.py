"""cykafka as confluent_kafka. Each test runs its own process, because imports happen once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.ours

Run = Callable[..., subprocess.CompletedProcess[str]]

COMMAND = [sys.executable, "-m", "cykafka.compat.confluent"]
INSTALL = "from cykafka.compat import confluent\nconfluent.install()\n"
# As if the confluent-kafka package were not installed.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        return None
finders = list(sys.meta_path)
for finder in finders:
    def find_spec(name, path=None, target=None, finder=finder):
        return None if name == "confluent_kafka" else finder.find_spec(name, path, target)
    hidden = Hidden()
    hidden.find_spec = find_spec
    sys.meta_path[sys.meta_path.index(finder)] = hidden
"""


@pytest.fixture
def passes(run_script: Run) -> Callable[[str], None]:
    """Run a script that asserts."""

    def passes(source: str) -> None:
        done = run_script(source)
        assert done.returncode == 0, done.stderr

    return passes


def test_every_confluent_module_is_cykafka(passes: Callable[[str], None]) -> None:
    passes(
        INSTALL
        + """
import cykafka, cykafka.admin
import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.cimpl import KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.error import ConsumeError
from confluent_kafka.serialization import SerializationError
from confluent_kafka.serializing_producer import SerializingProducer
from confluent_kafka.deserializing_consumer import DeserializingConsumer
from confluent_kafka.deserializing_share_consumer import DeserializingShareConsumer
from confluent_kafka._model import Node
import confluent_kafka.admin._acl

assert (Consumer, Producer) == (cykafka.Consumer, cykafka.Producer)
assert (Message, TopicPartition) == (cykafka.Message, cykafka.TopicPartition)
assert (KafkaError, KafkaException) == (cykafka.KafkaError, cykafka.KafkaException)
assert (ClusterMetadata, TopicMetadata) == (
    cykafka.admin.ClusterMetadata, cykafka.admin.TopicMetadata)
assert ConsumeError is cykafka.error.ConsumeError
assert SerializationError is cykafka.serialization.SerializationError
assert SerializingProducer is cykafka.SerializingProducer
assert DeserializingConsumer is cykafka.DeserializingConsumer
assert DeserializingShareConsumer is cykafka.DeserializingShareConsumer
assert Node is cykafka.Node
assert confluent_kafka.admin is cykafka.admin
assert all(hasattr(confluent_kafka, name) for name in cykafka.__all__)
namespace = {}
exec("from confluent_kafka import *", namespace)
assert namespace["Producer"] is cykafka.Producer
assert cykafka.admin.__spec__.name == "cykafka.admin"
"""
    )


def test_versions_name_the_interface_and_the_real_librdkafka(
    passes: Callable[[str], None],
) -> None:
    passes(
        INSTALL
        + """
import confluent_kafka, cykafka
assert confluent_kafka.__version__ == confluent_kafka.version() == "2.16.1"
assert confluent_kafka.cimpl.version() == "2.16.1"
assert confluent_kafka.libversion() == cykafka.libversion()
assert cykafka.version() == cykafka.__version__ != "2.16.1"
assert confluent_kafka.__file__.endswith("cykafka/compat/confluent/__init__.py")
assert confluent_kafka.__cykafka__ is cykafka
"""
    )


def test_interface_is_that_of_the_release_it_is_tested_against() -> None:
    from importlib.metadata import version

    from cykafka.compat import confluent

    assert version("confluent-kafka") == confluent.INTERFACE_VERSION


def test_install_fails_if_confluent_kafka_is_already_imported(
    passes: Callable[[str], None],
) -> None:
    passes(
        """
import confluent_kafka
from cykafka.compat import confluent
try:
    confluent.install()
except ImportError as error:
    assert confluent_kafka.__file__ in str(error), error
    assert "before anything imports" in str(error), error
else:
    raise AssertionError("not refused")
import confluent_kafka.cimpl
assert confluent_kafka.Producer.__module__.startswith("c")
assert not hasattr(confluent_kafka, "__cykafka__")
"""
    )


def test_second_install_changes_nothing_and_uninstall_undoes_it(
    passes: Callable[[str], None],
) -> None:
    passes(
        """
import sys
before = list(sys.meta_path)
"""
        + INSTALL
        + """
import confluent_kafka as first
confluent.install()
import confluent_kafka as second
assert first is second
assert len(sys.meta_path) == len(before) + 1
confluent.uninstall()
confluent.uninstall()
assert sys.meta_path == before
assert not any(name.split(".")[0] == "confluent_kafka" for name in sys.modules)
import confluent_kafka as real
assert not hasattr(real, "__cykafka__") and real.cimpl is not first.cimpl
confluent.uninstall()
assert sys.modules["confluent_kafka"] is real
"""
    )


def test_other_modules_come_from_confluent_kafka_and_use_cykafka_classes(
    passes: Callable[[str], None],
) -> None:
    passes(
        INSTALL
        + """
import sys, cykafka.aio
from confluent_kafka.kafkatest import verifiable_client
from confluent_kafka import schema_registry
assert "/confluent_kafka/kafkatest/" in verifiable_client.__file__
assert schema_registry.SerializationError is cykafka.serialization.SerializationError
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
assert not [file for file in files if "/cimpl." in file]
from confluent_kafka.aio import AIOProducer
assert AIOProducer is cykafka.aio.AIOProducer
try:
    import confluent_kafka.no_such_module
except ModuleNotFoundError as error:
    assert error.name == "confluent_kafka.no_such_module"
try:
    import confluent_kafka.admin.no_such_module
except ModuleNotFoundError as error:
    assert error.name == "confluent_kafka.admin.no_such_module"
else:
    raise AssertionError("not raised")
"""
    )


def test_missing_package_is_named(passes: Callable[[str], None]) -> None:
    passes(
        HIDE
        + INSTALL
        + """
from confluent_kafka import Producer
for name in ("schema_registry.rules", "schema_registry.common", "avro", "kafkatest"):
    try:
        __import__(f"confluent_kafka.{name}")
    except ModuleNotFoundError as error:
        assert "pip install confluent-kafka" in str(error), error
        assert error.name.startswith("confluent_kafka.")
    else:
        raise AssertionError(name)
try:
    from confluent_kafka import avro
except ImportError:
    pass
else:
    raise AssertionError("avro")
"""
    )


def test_script_runs_with_its_arguments_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("from confluent_kafka import Producer\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, helper, confluent_kafka\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], helper.Producer.__module__, confluent_kafka.version())\n"
        "sys.exit(3)\n"
    )

    done = subprocess.run(
        [*COMMAND, str(script), "a", "--help"], capture_output=True, text=True, timeout=30
    )

    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "['a', '--help'] cykafka 2.16.1\n"


def test_module_runs_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import sys, confluent_kafka\nprint(sys.argv[1:], confluent_kafka.Producer.__module__)\n"
    )

    done = subprocess.run(
        [*COMMAND, "-m", "tool", "x"], capture_output=True, text=True, timeout=30, cwd=tmp_path
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "['x'] cykafka\n", "")


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 0), (["-h"], 0), ([], 2), (["-m"], 2), (["-x"], 2)]
)
def test_command_prints_its_usage(arguments: list[str], status: int) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30)

    assert done.returncode == status
    assert re.match("usage: python -m cykafka.compat.confluent", done.stdout + done.stderr)
