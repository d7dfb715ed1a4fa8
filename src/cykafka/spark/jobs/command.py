"""The command line: ``python -m cykafka.spark <job> --config job.toml``, and options."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from cykafka import __version__
from cykafka.internal import run_command
from cykafka.spark.java import JavaError
from cykafka.spark.jobs.config import Config, ConfigError, load
from cykafka.spark.jobs.errors import explained
from cykafka.spark.jobs.keys import COMMON, JOBS, TABLES, Job, Key, boolean, near_miss
from cykafka.spark.jobs.report import Progress, Summary

__all__ = ["main"]

PROG = "python -m cykafka.spark"

_EPILOG = """\
Keys of a TOML file and options are the same: dry_run = true is --dry-run. Options win. The text
${NAME} in a value is the environment's variable NAME, and so is the value env:NAME: that is where
passwords belong. docs/spark-jobs.md has it all.

exit status: 0 done, or a continuous stream that was stopped by Ctrl-C or SIGTERM; 1 the job
failed, or was stopped before it was done; 2 the configuration is wrong
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if None.

    Returns
    -------
    int
        The exit status: 0, 1 (the job failed), 2 (the configuration is wrong).
    """
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _run(arguments: argparse.Namespace) -> int:
    job = JOBS[arguments.job]
    try:
        config = load(job, arguments.config, _given(job, arguments))
    except ConfigError as error:
        return _fail_configuration(error, arguments)
    if arguments.print_config:
        print(config.toml(), end="")
        return 0
    return _run_job(config, arguments)


def _run_job(config: Config, arguments: argparse.Namespace) -> int:
    from cykafka.spark.jobs.log import Log
    from cykafka.spark.jobs.session import Run, Stop, Stopped, session
    from cykafka.spark.jobs.topic_check import check_topics

    name = config.job.name
    module = importlib.import_module(f"cykafka.spark.jobs.{name}")
    progress = Progress(config["progress"])
    stop = Stop()
    # Until the job has ended this is what there is to know: what an earlier run left is not its.
    summary = Summary(name, outcome="running", dry_run=bool(config.values.get("dry_run")))
    if not _write(summary, config):
        return 1
    log = None if arguments.verbose else Log()
    failure: BaseException | None = None
    run: Run | None = None
    try:
        check_topics(config)
        progress.show(f"{name}: starting Spark")
        # Twice: Spark takes Ctrl-C for itself when it starts.
        with stop.on_signals(), session(config, log) as spark, stop.on_signals():
            run = Run(spark, config, progress, stop, log)
            summary = module.run(run)
    except BaseException as error:
        failure = error
        summary = summary if run is None else run.summary
        summary.outcome = "stopped" if isinstance(error, Stopped) else "failed"
    progress.clear()
    written = _write(summary, config)
    if run is not None and not isinstance(failure, ConfigError):
        print(config.redact("\n".join(summary.lines())))
    last = [] if log is None or failure is None else log.last()
    if log is not None:
        log.close()
    if failure is None:
        return 0 if written else 1
    if isinstance(failure, ConfigError):
        words = [config.redact(problem) for problem in failure.problems]
        return _fail_configuration(ConfigError(words), arguments)
    if not isinstance(failure, Exception):
        raise failure
    told = str(failure) if isinstance(failure, Stopped | JavaError) else explained(failure)
    print(f"{PROG} {name}: {config.redact(told)}", file=sys.stderr)
    if arguments.verbose:
        print(config.redact("".join(traceback.format_exception(failure))), file=sys.stderr)
    elif not isinstance(failure, Stopped | JavaError):
        if last:
            print("the end of Spark's log:", file=sys.stderr)
        for line in last:
            print(f"  | {config.redact(line)}", file=sys.stderr)
        print("(--verbose shows where, and all of Spark's log)", file=sys.stderr)
    return 1


def _write(summary: Summary, config: Config) -> bool:
    """Write the summary where the configuration says; False if that cannot be."""
    if config["summary"]:
        try:
            summary.write(config["summary"])
        except OSError as error:
            told = f'{PROG} {config.job.name}: key "summary" = {config["summary"]!r}: {error}'
            print(told, file=sys.stderr)
            return False
    return True


def _fail_configuration(error: ConfigError, arguments: argparse.Namespace) -> int:
    where = f" in {arguments.config}" if arguments.config else ""
    count = len(error.problems)
    what = "a mistake" if count == 1 else f"{count} mistakes"
    print(f"{PROG} {arguments.job}: {what}{where}:", file=sys.stderr)
    for problem in error.problems:
        print(f"  - {problem}", file=sys.stderr)
    return 2


# -- arguments


def _given(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says, by the names of keys."""
    given = {
        key.name: value
        for key in (*job.keys, *COMMON)
        if (value := getattr(arguments, f"key_{key.name}")) is not None
    }
    if getattr(arguments, "bootstrap_servers", None) is not None:
        given["kafka.bootstrap.servers"] = arguments.bootstrap_servers
    for table in job.tables:
        for name, value in getattr(arguments, f"table_{table}"):
            given[f"{table}.{name}"] = value
    return given


class _Parser(argparse.ArgumentParser):
    """Tells which option was meant, and does not guess from its beginning."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> Any:
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            message = f"there is no option {unknown[1]}{near_miss(unknown[1], known)}"
        print(f"{self.prog}: {message}\n(see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        # A job's parser knows its options; the one above it does not.
        if rest and self._defaults.get("job"):
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROG,
        description="Pipelines between Kafka and Parquet, on Spark.",
        epilog="Each job tells its options: python -m cykafka.spark archive --help\n\n" + _EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cykafka {__version__}")
    jobs = parser.add_subparsers(
        dest="job", metavar="JOB", required=True, title="jobs", parser_class=_Parser
    )
    for job in JOBS.values():
        _add_job(jobs, job)
    return parser


def _add_job(jobs: Any, job: Job) -> None:
    parser = jobs.add_parser(
        job.name,
        help=job.summary,
        description=job.description,
        epilog=f"examples:\n{_indented(job.examples)}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(job=job.name)
    parser.add_argument("--config", metavar="FILE", help="a TOML file with the configuration")
    parser.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT,...", help="the brokers: kafka.bootstrap.servers"
    )
    own = parser.add_argument_group("the job")
    for key in job.keys:
        _add_key(own, key)
    common = parser.add_argument_group("Spark and the clients")
    for key in COMMON:
        _add_key(common, key)
    for table in job.tables:
        option = "--spark-conf" if table == "spark" else f"--{table}"
        common.add_argument(
            option,
            dest=f"table_{table}",
            action="append",
            default=[],
            type=_spark_pair if table == "spark" else _pair,
            metavar="NAME=VALUE",
            help=TABLES[table] + "; repeatable",
        )
    common.add_argument(
        "--print-config",
        action="store_true",
        help="print the configuration as TOML, without secrets, and end",
    )
    common.add_argument(
        "--verbose", action="store_true", help="show Spark's log, and where an error came from"
    )


def _indented(words: str) -> str:
    return "".join(f"  {line}\n" for line in words.rstrip("\n").splitlines())


def _add_key(group: Any, key: Key) -> None:
    words = key.help
    if key.default is not None and key.read is not boolean:
        default = f"{key.default:g}" if isinstance(key.default, float) else key.default
        words += f" (default: {default})"
    if key.required:
        words += " (required)"
    words = words.replace("%", "%%")
    if key.read is boolean:
        action = argparse.BooleanOptionalAction
        if key.default is not False:
            words += " (default: yes)"
        group.add_argument(key.option, dest=f"key_{key.name}", action=action, help=words)
    else:
        group.add_argument(key.option, dest=f"key_{key.name}", metavar=key.metavar, help=words)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name.strip() or not separator:
        # The value may be a secret: only what stands before the first `=` is told.
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name.strip(), value


def _spark_pair(text: str) -> tuple[str, str]:
    name, value = _pair(text)
    return name.removeprefix("spark."), value
