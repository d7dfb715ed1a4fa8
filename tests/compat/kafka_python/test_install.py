"""`kafka` is cykafka's after install(), and not another library's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fixture_types import RunScript

INSTALL = """
from cykafka.compat import kafka_python
kafka_python.install()
"""
COMMAND = [sys.executable, "-m", "cykafka.compat.kafka_python"]


@pytest.fixture
def passes(run_script: RunScript) -> Callable[[str], None]:
    """Run a script, which must end without an error."""

    def passes(source: str) -> None:
        done = run_script(source)
        assert done.returncode == 0, done.stderr

    return passes


def test_every_module_is_importable(passes: Callable[[str], None]) -> None:
    passes(
        INSTALL
        + """
import importlib
import kafka
for name in kafka_python._MODULES:
    module = importlib.import_module(f"kafka.{name}")
    assert module is importlib.import_module(f"cykafka.compat.kafka_python.{name}")
    assert module.__name__.startswith("cykafka.")
from kafka import KafkaClient, SimpleProducer
from kafka.consumer.simple import SimpleConsumer
import kafka.producer.keyed
from kafka.partitionner.hashed import murmur2  # as the document has it
import kafka.partitionner
assert kafka.partitionner is kafka.partitioner
assert kafka.__version__ == "0.9.5"
"""
    )


def test_unknown_module_is_an_error_that_says_so(passes: Callable[[str], None]) -> None:
    passes(
        INSTALL
        + """
for name in ("kafka.coordinator", "kafka._fetch", "kafka.consumer._fetch"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert name in str(error) and "kafka-python 0.9.5" in str(error), error
    else:
        raise AssertionError(name)
"""
    )


def test_install_is_refused_if_another_kafka_is_imported(
    passes: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "kafka.py").write_text("")
    passes(
        f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import kafka
from cykafka.compat import kafka_python
try:
    kafka_python.install()
except ImportError as error:
    assert kafka.__file__ in str(error) and "kafka_python.install()" in str(error), error
else:
    raise AssertionError("not refused")
assert not hasattr(kafka, "KafkaClient")
"""
    )


def test_wrong_property_is_refused_and_changes_nothing(passes: Callable[[str], None]) -> None:
    passes(
        """
import cykafka
from cykafka.compat import kafka_python
from cykafka.compat.kafka_python import _handles
kafka_python.install({"oauth_cb": print, "error_cb": print, "logger": None})
kafka_python.install({"security.protocol": "SSL"})
for wrong in ({"foo": "bar"}, {"security.protocol": "none"}, "x"):
    try:
        kafka_python.install(wrong)
    except (cykafka.KafkaException, ValueError):
        assert _handles.properties == {"security.protocol": "SSL"}
    else:
        raise AssertionError(wrong)
"""
    )


def test_uninstall_undoes_install(passes: Callable[[str], None]) -> None:
    passes(
        """
import sys
before = list(sys.meta_path)
"""
        + INSTALL
        + """
import kafka
kafka_python.install()
assert len(sys.meta_path) == len(before) + 1
kafka_python.uninstall()
kafka_python.uninstall()
assert sys.meta_path == before
assert not any(name.split(".")[0] == "kafka" for name in sys.modules)
kafka_python.install()
import kafka as again
assert again is kafka
"""
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_command_runs_a_script_with_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport kafka.common\nprint(sys.argv, __name__)\n"
        "from cykafka.compat.kafka_python import _handles\nprint(_handles.properties)\n"
    )
    done = run("-X", "client.rack=a=b", str(script), "-X", "one")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{[str(script), '-X', 'one']} __main__",
        "{'client.rack': 'a=b'}",
    ]


def test_command_explains_the_keyword(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from kafka import SimpleProducer\nSimpleProducer(None, async=True)\n")
    done = run(str(script))
    assert done.returncode == 1
    assert "async_=True" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["-X"], ["-X", "secret"], ["-Y", "script.py"]])
def test_command_refuses_wrong_arguments(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr


def test_command_helps() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "async_=True" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected a script, or -m and a module"),
        (["-m"], "expected a module"),
        (["-q", "x.py"], "unknown option -q"),
        (["missing.py"], "cannot open missing.py"),
        (["-X", "foo=bar", "x.py"], '-X: No such configuration property: "foo"'),
    ],
)
def test_command_says_what_is_wrong(arguments: list[str], text: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
