"""The command line as a whole: help, wrong arguments, closed and full outputs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cykafka.cli.main import main


def test_help_lists_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "version" in out


def test_version_prints_the_parts_of_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    import cykafka

    assert main(["version"]) == 0
    printed = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    info = cykafka.build_info()
    assert list(printed) == list(info)
    assert printed["librdkafka"] == cykafka.libversion()[0]
    assert printed["librdkafka_source"] == info["librdkafka_source"]
    assert printed["librdkafka_sha256"] == info["librdkafka_sha256"]
    assert printed["patches"].split() == info["patches"]
    assert printed["missing_patches"] == "none"
    assert "snappy" in printed["features"].split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["demo", "--limit", "0"],
        ["demo", "--limit", "many"],
        ["demo", "--format", "xml"],
        ["demo", "-X", "security.protocol"],
        ["demo", "--timeout", "-1"],
        ["demo", "--bootstrap-servers", ""],
        ["demo", "--bootstrap-servers", "a:9092,"],
        ["demo", "--bootstrap-servers", "http://a:9092"],
        ["demo", "-X", "bootstrap.servers="],
        ["demo", "-X", "no.such.property=1"],
        ["demo", "-F", "/no/such/file"],
        ["demo", "--broker", "-b", "a:9092"],
    ],
)
def test_main_wrong_arguments_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "cykafka" in capsys.readouterr().err


@pytest.mark.parametrize("group", [[], ["topics"], ["groups"]], ids=str)
def test_group_without_a_command_shows_its_help_and_exits_2(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(group) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"Usage: {' '.join(['cykafka', *group])} COMMAND" in shown.err

    assert main([*group, "--help"]) == 0


def test_misspelled_option_is_an_error_with_the_way_to_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--limt", "5"]) == 2

    error = capsys.readouterr().err
    assert "cykafka demo: Unknown option: --limt. Did you mean --limit?" in error
    assert "(see cykafka demo --help)" in error


@pytest.mark.parametrize("missing", ["rich", "cyclopts"])
def test_command_without_its_libraries_names_the_extra_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "from cykafka.cli.main import main; sys.exit(main())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "demo"], capture_output=True, text=True, timeout=30
    )
    assert run.returncode == 2
    assert "pip install 'cykafka[cli]'" in run.stderr


def test_version_needs_no_other_package() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['cyclopts'] = None\n"
        "from cykafka.cli.main import main; sys.exit(main(['version']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert run.returncode == 0
    assert run.stdout.startswith("cykafka ")


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["demo", "--help"]], ids=str)
def test_closed_output_ends_quietly(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "cykafka", *arguments],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # else argparse hides the error itself
            text=True,
            timeout=30,
        )
    finally:
        os.close(write_end)
    assert run.returncode == 141
    assert run.stderr == ""


def test_full_output_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "cykafka", "version"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert run.returncode == 1
    assert run.stderr == "cykafka: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("version >&-", 1, "cykafka: cannot write the output: Bad file descriptor\n"),
        ("unknown 2>&-", 2, ""),
    ],
)
def test_closed_standard_stream_gets_nothing(command: str, status: int, error: str) -> None:
    run = subprocess.run(
        ["sh", "-c", f'exec "$0" -m cykafka {command}', sys.executable],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (status, "", error)


def test_argument_too_many_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "file", "geheim"]) == 2

    error = capsys.readouterr().err
    assert "1 arguments too many" in error
    assert "geheim" not in error
