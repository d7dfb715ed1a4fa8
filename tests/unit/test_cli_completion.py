"""The completion of the command ``cykafka`` in shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cykafka.cli.main import main

pytestmark = pytest.mark.ours

BASH = """\
source {script}
complete_words() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _cykafka; \
echo "${{COMPREPLY[@]}}"; }}
complete_words cykafka gro
complete_words cykafka groups res
complete_words cykafka topics create --if
complete_words cykafka configs describe bro
"""
FISH = """\
source {script}
complete -C "cykafka gro"
complete -C "cykafka groups res"
complete -C "cykafka topics create --if"
complete -C "cykafka configs describe bro"
"""
# zsh completes only in a terminal, so the test reads its words and lets zsh check the script.
ZSH = "autoload -U compinit; compinit -D -u; source {script}; whence -w _cyclopts_cykafka"


def run(shell: str, code: str, home: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)},
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("shell", "code"), [("bash", BASH), ("fish", FISH)])
def test_shell_completes_commands_options_and_choices(
    shell: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)

    words = [
        line.split()[0] for line in run(shell, code.format(script=script), tmp_path).splitlines()
    ]

    assert words == ["groups", "reset", "--if-not-exists", "broker"]


def test_zsh_accepts_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    text = capsys.readouterr().out
    script = tmp_path / "_cyclopts_cykafka"
    script.write_text(text)

    assert text.startswith("#compdef cykafka\n")
    for word in ("groups", "reset", "--if-not-exists", "broker"):
        assert word in text
    assert run("zsh", ZSH.format(script=script), tmp_path) == "_cyclopts_cykafka: function\n"


def test_installation_writes_the_script_of_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert main(["--install-completion", "--shell", "bash"]) == 0

    (script,) = tmp_path.rglob("completions/cykafka")
    assert "delete-records" in script.read_text()
    assert str(script) in capsys.readouterr().out.replace("\n", "")
