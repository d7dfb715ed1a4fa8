"""Where the command finds the properties of its connection."""

from __future__ import annotations

import pwd
import time
from pathlib import Path
from typing import Any

import pytest

from cykafka import KafkaError
from cykafka.cli.cluster.connection import Brokers, Connection
from cykafka.cli.main import main
from cykafka.cli.terminal.failures import Failed, UsageError

SECRET = "geheim-4711"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of configurations, and an environment without ours."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CYKAFKA_PROFILE", raising=False)
    monkeypatch.delenv("CYKAFKA_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path


@pytest.fixture
def profiles(home: Path) -> Path:
    path = home / "cykafka" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        '[default]\nbootstrap.servers = "default:1"\nacks = 1\n'
        '[prod]\nbootstrap.servers = ["prod:1", "prod:2"]\nsecurity.protocol = "SSL"\n'
        "enable.idempotence = true\n"
    )
    return path


def test_first_place_in_the_documented_order_wins(
    profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nlinger.ms=7\n")

    def servers(**options: object) -> str:
        return Connection(**options).properties()["bootstrap.servers"]  # type: ignore[arg-type]

    assert servers() == "default:1"
    monkeypatch.setenv("CYKAFKA_PROFILE", "prod")
    assert servers() == "prod:1,prod:2"
    monkeypatch.setenv("CYKAFKA_BOOTSTRAP_SERVERS", "environment:1")
    assert servers() == "environment:1"
    assert servers(profile="default") == "default:1"
    assert servers(profile="default", config=file) == "file:1"
    overrides = ("bootstrap.servers=override:1",)
    assert servers(profile="default", config=file, overrides=overrides) == "override:1"
    assert servers(overrides=overrides, bootstrap_servers="option:1") == "option:1"


def test_places_are_merged_but_an_explicit_one_hides_the_default_profile(
    profiles: Path, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")

    assert Connection(bootstrap_servers="option:1").properties()["acks"] == "1"
    assert "acks" not in Connection(config=file).properties()
    merged = Connection(config=file, profile="prod").properties()
    assert merged["security.protocol"] == "SSL"
    assert merged["enable.idempotence"] == "true"


def test_properties_file_skips_comments_and_blanks(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# one\n! two\n\n bootstrap.servers = a:1 \nsasl.password=a=b # c\n")

    properties = Connection(config=file).properties()

    assert properties == {"bootstrap.servers": "a:1", "sasl.password": "a=b # c"}


def test_properties_file_of_windows_keeps_every_character_of_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes("\ufeffbootstrap.servers=a:1\r\nsasl.password=a\x0c\u2028b\r\n".encode())

    properties = Connection(config=file).properties()

    assert properties == {"bootstrap.servers": "a:1", "sasl.password": "a\x0c\u2028b"}


def test_user_without_a_home_needs_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)  # as in a container with --user
    assert Connection(bootstrap_servers="a:1").properties() == {"bootstrap.servers": "a:1"}
    with pytest.raises(UsageError, match=r"sasl\.password: cannot read the file after @"):
        Connection(bootstrap_servers="a:1", overrides=("sasl.password=@~/x",)).properties()


def test_toml_file_has_nested_and_quoted_keys(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('bootstrap.servers = "a:1"\n"linger.ms" = 5\n[sasl]\nusername = "u"\n')

    properties = Connection(config=file).properties()

    assert properties == {"bootstrap.servers": "a:1", "linger.ms": "5", "sasl.username": "u"}


def test_references_are_resolved_in_toml_and_options_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    monkeypatch.setenv("THE_SECRET", SECRET)
    toml = tmp_path / "client.toml"
    toml.write_text(f'sasl.password = "@{secret}"\nssl.key.password = "env:THE_SECRET"\n')
    plain = tmp_path / "client.properties"
    plain.write_text("sasl.password=@literal\n")

    def password(**options: object) -> str:
        connection = Connection(bootstrap_servers="a:1", **options)  # type: ignore[arg-type]
        return connection.properties()["sasl.password"]

    assert password(config=toml) == SECRET
    assert password(config=plain) == "@literal"
    assert password(overrides=(f"sasl.password=@{secret}",)) == SECRET
    assert password(overrides=("sasl.password=env:THE_SECRET",)) == SECRET
    assert password(overrides=("sasl.password=@@x",)) == "@x"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "brokers are missing"),
        ({"bootstrap_servers": "a:1,"}, "-b: expected HOST:PORT"),
        ({"bootstrap_servers": "http://a:1"}, "-b: expected HOST:PORT"),
        ({"overrides": ("bootstrap.server=a:1",)}, 'did you mean "bootstrap.servers"'),
        ({"overrides": ("acks",)}, "-X: expected NAME=VALUE"),
        ({"overrides": ("sasl.jaas.config=x",)}, "use sasl.username and sasl.password"),
        ({"overrides": ("logger=x",)}, "No such configuration property"),
        ({"overrides": ("sasl.password=@/none",)}, "sasl.password: cannot read the file"),
        ({"overrides": ("sasl.password=env:NONE_",)}, "no variable NONE_"),
        ({"profile": "x"}, "profile 'x' does not exist"),
        ({"config": Path("/none")}, "cannot read /none"),
    ],
    ids=str,
)
def test_mistake_is_an_error_that_says_what_to_do(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        Connection(**options).properties()  # type: ignore[arg-type]
    assert words in str(error.value)


def test_process_without_a_home_has_no_profiles(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_user(number: int) -> Any:  # as in a container with any number as its user
        raise KeyError(number)

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_such_user)
    monkeypatch.chdir(home)

    assert Connection(bootstrap_servers="a:1").properties() == {"bootstrap.servers": "a:1"}
    with pytest.raises(UsageError, match="cannot read the file after @"):
        Connection(bootstrap_servers="a:1", overrides=("sasl.password=@~/x",)).properties()


def test_unknown_profile_suggests_the_one_meant(profiles: Path) -> None:
    with pytest.raises(UsageError, match='did you mean "prod"'):
        Connection(profile="prd").properties()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("acks = 1\n", "write \\[default\\] above it"),
        ("[default]\nacks = 1979-01-01\n", "acks must be a string"),
        ("[default\n", "is not TOML"),
    ],
)
def test_profiles_that_are_not_valid_are_an_error(home: Path, content: str, words: str) -> None:
    (home / "cykafka").mkdir()
    (home / "cykafka" / "config.toml").write_text(content)
    with pytest.raises(UsageError, match=words):
        Connection().properties()


@pytest.mark.parametrize(
    "arguments",
    [
        ["-X", f"sasl.pasword={SECRET}"],
        ["-X", f"={SECRET}"],
        ["-X", "security.protocol=SSL", "-X", f"ssl.key.pem={SECRET}"],
        ["-X", f"ssl.key.password=@{SECRET}"],
    ],
    ids=["key", "no key", "certificate", "file"],
)
def test_secret_is_in_no_error(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "topic", "-b", "localhost:1", *arguments]) == 2

    out, err = capfd.readouterr()
    assert err.startswith("cykafka: ")
    assert err.count("\n") == 1
    assert SECRET not in out + err


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_topic_that_is_not_utf_8_is_an_error(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "\udcff", "-b", "localhost:1"]) == 2
    assert capfd.readouterr().err == "cykafka: an argument is not UTF-8\n"


def test_secret_of_an_unknown_option_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["consume", "topic", f"--sasl.password={SECRET}"]) == 2

    err = capfd.readouterr().err
    assert "Unknown option: --sasl.password." in err
    assert SECRET not in err


def test_secret_in_a_file_without_equals_is_not_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"acks=1\n{SECRET}\n")

    assert main(["consume", "topic", "-F", str(file)]) == 2

    err = capfd.readouterr().err
    assert f"{file}, line 2: expected KEY=VALUE" in err
    assert SECRET not in err


def test_help_hides_the_users_configuration(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CYKAFKA_BOOTSTRAP_SERVERS", f"{SECRET}:1")
    for command in ("produce", "consume"):
        assert main([command, "--help"]) == 0
    out = capfd.readouterr().out
    assert "--bootstrap-servers" in out
    assert SECRET not in out


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_unreachable_brokers_are_one_line_within_the_timeout(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    assert main([command, "topic", "-b", "127.0.0.1:1", "--timeout", "0.7"]) == 1

    assert time.monotonic() - begun < 15
    err = capfd.readouterr().err
    assert err.startswith("cykafka: cannot reach 127.0.0.1:1 within 0.7 s: ")
    assert "Connection refused" in err
    assert err.count("\n") == 1


def test_verbose_shows_the_log_of_librdkafka(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["consume", "topic", "-b", "127.0.0.1:1", "--timeout", "0.7"]
    assert main([*arguments, "-v"]) == 1
    assert "|FAIL|" in capfd.readouterr().err


def test_log_in_that_fails_ends_the_wait_at_once() -> None:
    class Client:
        def list_topics(self, topic: object, timeout: float) -> object:
            from cykafka import KafkaException

            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        def poll(self, timeout: float) -> int:
            brokers.keep_error(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
            return 1

    brokers = Brokers({"bootstrap.servers": "a:1"}, timeout=1e9)
    with pytest.raises(Failed, match=r"cannot reach a:1 .*wrong password"):
        brokers.metadata(Client())  # type: ignore[arg-type]


def test_outage_is_told_with_its_cause_and_only_once() -> None:
    told: list[str] = []
    brokers = Brokers({"bootstrap.servers": "a:1"}, timeout=1)
    brokers.tell = told.append
    brokers.keep_error(KafkaError(KafkaError._TRANSPORT, "refused"))
    for _ in range(3):
        brokers.keep_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert told == ["cannot reach any broker; retrying: refused"]
