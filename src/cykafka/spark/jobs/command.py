"""The command line: ``python -m cykafka.spark <job> --config job.toml``, and options."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from cyclopts import App, Group, Parameter

from cykafka import __version__
from cykafka.internal.command_lines import pairs, run_app
from cykafka.spark.java import JavaError
from cykafka.spark.jobs.config.fields import Metavar
from cykafka.spark.jobs.config.load import help_of, load, to_toml
from cykafka.spark.jobs.config.models import JOBS, TABLES, JobConfig
from cykafka.spark.jobs.observing.logs import SparkStderr, buffer_log, log_as_json
from cykafka.spark.jobs.observing.report import Health, ProgressLine, Summary
from cykafka.spark.jobs.problems import ConfigError, Stopped, explain_error

if TYPE_CHECKING:
    from cykafka.spark.jobs.run.session import JobRun

__all__ = ["EXAMPLES", "MODULES", "app", "main"]

PROG = "python -m cykafka.spark"

# The modules that run the jobs. One is imported only when its job runs.
MODULES = {
    "archive": "archive.archiving",
    "compact": "tables.compacting",
    "mirror": "mirror.mirroring",
    "profile": "profile",
    "redrive": "mirror.redriving",
    "replay": "replay.replaying",
}

_EPILOGUE = (
    "Each key of a TOML file is also an option: dry_run = true is --dry-run, [kafka] with "
    "linger.ms = 5 is --kafka linger.ms=5. Options take precedence over the file. The text "
    "${NAME} in a value, or the value env:NAME, stands for the environment variable NAME: use "
    "them for passwords. docs/spark-jobs.md explains all keys.\n\n"
    "exit status: 0 done, or a continuous stream that was stopped by Ctrl-C or SIGTERM; 1 the job "
    "failed, or was stopped before it was done; 2 the configuration is wrong"
)


EXAMPLES = {
    "archive": """\
python -m cykafka.spark archive --bootstrap-servers localhost:9092 \\
    --topics orders,payments --path /data/archive \\
    --checkpoint /data/archive.checkpoint
python -m cykafka.spark archive --config archive.toml \\
    --trigger continuous --interval 1m
python -m cykafka.spark archive --config archive.toml --format iceberg \\
    --partition-by 'topic,day(timestamp)'
""",
    "replay": """\
python -m cykafka.spark replay --bootstrap-servers localhost:9092 \\
    --path /data/archive --topics orders --to orders-again --rate 5000
python -m cykafka.spark replay --config replay.toml \\
    --from-time 2026-01-01 --until-time 2026-02-01 --dry-run
""",
    "compact": """\
python -m cykafka.spark compact --config compact.toml --file-size 256
python -m cykafka.spark compact --format iceberg --table lake.kafka.orders \\
    --spark-conf sql.catalog.lake.type=rest \\
    --spark-conf sql.catalog.lake.uri=http://catalog:8181
""",
    "mirror": """\
python -m cykafka.spark mirror --config mirror.toml
python -m cykafka.spark mirror --bootstrap-servers localhost:9092 \\
    --topics orders --to large-orders --checkpoint /data/mirror.checkpoint \\
    --dead-letter-topic orders.dlq --schema 'id STRING, total DOUBLE' \\
    --transform "SELECT key, value FROM records WHERE json.total > 100"
""",
    "redrive": """\
python -m cykafka.spark redrive --bootstrap-servers localhost:9092 \\
    --topics orders.dlq --checkpoint /data/redrive.checkpoint --dry-run
python -m cykafka.spark redrive --config redrive.toml \\
    --where "dlq_error LIKE '%timeout%'" --max-attempts 3
""",
    "profile": """\
python -m cykafka.spark profile --bootstrap-servers localhost:9092 \\
    --topics orders
python -m cykafka.spark profile --config profile.toml --summary orders.json
""",
}


def _help(job: type[JobConfig]) -> str:
    """The docstring of a job, a line for each paragraph."""
    paragraphs = inspect.cleandoc(job.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


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
    return run_app(__name__, argv, extra="spark")


# -- options


def _command(name: str, job: type[JobConfig]) -> Callable[..., int]:
    """The function of a job's command: its parameters are the keys of the configuration.

    They take text, because `load` reads and checks the values of the file and of the command line
    together.
    """

    def command(
        config: str | None = None,
        print_config: bool = False,
        verbose: bool = False,
        **given: Any,
    ) -> int:
        chosen = {key: value for key, value in given.items() if value is not None}
        if (servers := chosen.pop("bootstrap_servers", None)) is not None:
            chosen["kafka.bootstrap.servers"] = servers
        try:
            for table in TABLES:
                for option, value in pairs(chosen.pop(table, ())):
                    chosen[f"{table}.{option}"] = value
        except ValueError as error:
            print(f"{PROG} {name}: {_option(table)}: {error}", file=sys.stderr)
            return 2
        with ExitStack() as stack:
            mistakes: ConfigError | None = None
            with buffer_log() as early:
                try:
                    loaded = load(job, config, chosen)
                except ConfigError as error:
                    mistakes = error
            log_format = (mistakes or loaded).log_format or chosen.get("log_format")
            redact = str if mistakes else loaded.redact
            log = stack.enter_context(log_as_json(name, redact)) if log_format == "json" else None
            for record in early:
                logging.getLogger(record.name).handle(record)
            if mistakes is not None:
                where = "" if config is None else f" in {config}"
                where += " or in the options" if where and chosen else ""
                return _fail_configuration(mistakes.problems, name, log, where)
            if print_config:
                print(loaded.redact(to_toml(loaded)), end="")
                return 0
            return _run_job(loaded, verbose, log)

    signature = inspect.Signature([*_parameters(job)])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        name: parameter.annotation for name, parameter in signature.parameters.items()
    }
    return command


def _parameters(job: type[JobConfig]) -> Iterator[inspect.Parameter]:
    own, common = Group("The job", sort_key=0), Group("Spark and the clients", sort_key=1)
    yield _parameter("config", str, own, None, "a TOML file with the configuration", "FILE")
    words = "the brokers: kafka.bootstrap.servers"
    yield _parameter("bootstrap_servers", str, own, None, words, "HOST:PORT,...")
    for name, key in job.model_fields.items():
        words = help_of(key)
        group = common if name in JobConfig.model_fields else own
        if name == "job":
            continue
        if name in TABLES:
            words += "; repeatable"
            yield _parameter(name, list[str], common, None, words, "NAME=VALUE")
            continue
        if key.is_required():
            words += " (required)"
        elif isinstance(key.default, bool):
            words += f" (default: {'yes' if key.default else 'no'})"
        elif key.default is not None:
            shown = f"{key.default:g}" if isinstance(key.default, float) else key.default
            shown = ",".join(shown) if isinstance(shown, list) else shown
            words += f" (default: {shown})"
        kind = bool if key.annotation is bool else str
        metavar = next(_metavars([*key.metadata, key.annotation]), "VALUE")
        yield _parameter(key.alias or name, kind, group, None, words, metavar)
    words = "print the configuration as TOML, without secrets, and exit"
    yield _parameter("print_config", bool, common, False, words)
    words = "show Spark's log, and tracebacks of errors"
    yield _parameter("verbose", bool, common, False, words)


def _parameter(
    name: str,
    kind: Any,
    group: Group,
    default: Any,
    words: str,
    metavar: str | None = None,
) -> inspect.Parameter:
    parameter = Parameter(
        name=_option(name),
        help=words,
        group=group,
        metavar=metavar,
        negative=None if kind is bool and default is None else (),
        show_default=False,
        allow_leading_hyphen=kind is not bool,
    )
    annotation = Annotated[kind | None if default is None else kind, parameter]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _metavars(annotations: Sequence[Any]) -> Iterator[str]:
    """The names of a type in the help, from outside to inside."""
    for annotation in annotations:
        if isinstance(annotation, Metavar):
            yield annotation
        elif get_origin(annotation) is Literal:
            yield "|".join(get_args(annotation))
        else:
            yield from _metavars(get_args(annotation))


def _option(key: str) -> str:
    return "--spark-conf" if key == "spark" else f"--{key.replace('_', '-')}"


# -- running


def _run_job(config: JobConfig, verbose: bool, lines: logging.Logger | None) -> int:
    name = config.job
    progress = ProgressLine(config.progress, log=lines)
    health = Health(config.health_timeout)
    # Until the job has ended this is what there is to know: what an earlier run left is not its.
    summary = Summary(name, outcome="running", dry_run=config.is_dry_run)
    if not _write(summary, config, lines):
        return 1
    log = None if verbose else SparkStderr()
    failure: BaseException | None = None
    run: JobRun[JobConfig] | None = None
    try:
        from cykafka.spark.jobs.config.topic_check import check_topics
        from cykafka.spark.jobs.records.decoding import check_schemas
        from cykafka.spark.jobs.run.session import JobRun, Stop, session

        module = importlib.import_module(f"cykafka.spark.jobs.{MODULES[name]}")
        stop = Stop()
        with ExitStack() as stack:
            metrics = None
            if config.metrics is not None:
                from cykafka.spark.jobs.observing.endpoint import listen

                server = stack.enter_context(closing(listen(config, health)))
                metrics = server.metrics
                words = f"{name}: metrics and health at {server.url}/metrics, /health, /ready"
                progress.print_line(words, url=server.url)
            progress.show_stage(f"{name}: requesting the topics from the brokers")
            check_topics(config)
            check_schemas(config)
            progress.show_stage(f"{name}: starting Spark")
            # Twice: Spark takes Ctrl-C for itself when it starts.
            with stop.on_signals(), session(config, log) as spark, stop.on_signals():
                run = JobRun(spark, config, progress, stop, log, health, metrics)
                for words in run.driver.warnings():
                    run.warn(words)
                progress.show_stage(f"{name}: planning")
                summary = module.run(run)
    except BaseException as error:
        failure = error
        summary = summary if run is None else run.summary
        summary.outcome = "stopped" if isinstance(error, Stopped) else "failed"
    progress.clear()
    written = _write(summary, config, lines)
    if run is not None and not isinstance(failure, ConfigError):
        if lines is None:
            print(config.redact("\n".join(summary.lines())))
        else:
            lines.info(f"{name} {summary.outcome}", extra={"summary": summary.as_dict()})
    last = [] if log is None or failure is None else log.last()
    if log is not None:
        log.close()
    if failure is None:
        return 0 if written else 1
    if isinstance(failure, ConfigError):
        problems = [config.redact(words) for words in failure.problems]
        return _fail_configuration(problems, name, lines)
    if not isinstance(failure, Exception):
        raise failure
    expected = isinstance(failure, Stopped | JavaError)
    text = str(failure) if expected else explain_error(failure)
    if lines is not None:
        if expected:
            lines.error(text)
        else:
            lines.error(text, exc_info=failure, extra={"spark_log": last})
        return 1
    # The cause comes last, where a reader looks first.
    details = []
    if verbose:
        details = ["".join(traceback.format_exception(failure))]
    elif not expected:
        if last:
            details = ["the end of Spark's log:", *(f"  | {line}" for line in last)]
        details.append("(--verbose shows where, and all of Spark's log)")
    for words in details:
        print(config.redact(words), file=sys.stderr)
    _report_error(None, name, config.redact(text))
    return 1


def _report_error(
    lines: logging.Logger | None, job: str, words: str, details: Sequence[str] = ()
) -> None:
    """Report an error with its details, as lines of text or as one line of JSON."""
    if lines is not None:
        lines.error(words, extra={"details": details} if details else None)
    else:
        print(f"{PROG} {job}: {words}", *details, sep="\n", file=sys.stderr)


def _write(summary: Summary, config: JobConfig, lines: logging.Logger | None) -> bool:
    """Write the summary where the configuration says; False if that cannot be."""
    if config.summary:
        try:
            summary.write(config.summary)
        except OSError as error:
            _report_error(lines, config.job, f'key "summary" = {config.summary!r}: {error}')
            return False
    return True


def _fail_configuration(
    problems: list[str], job: str, lines: logging.Logger | None, where: str = ""
) -> int:
    what = "a mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    if lines is None:
        where += ":"
        problems = [f"  - {problem}" for problem in problems]
    _report_error(lines, job, f"{what}{where}", problems)
    return 2


app = App(
    name=PROG,
    help="Pipelines between Kafka and Parquet, Delta or Iceberg, on Spark.",
    help_epilogue=f"Help for a job: {PROG} archive --help\n\n{_EPILOGUE}",
    help_format="plaintext",
    version=f"cykafka {__version__}",
)
for _name, _job in JOBS.items():
    app.command(
        _command(_name, _job),
        name=_name,
        help=_help(_job),
        help_epilogue=f"examples:\n{textwrap.indent(EXAMPLES[_name], '  ')}\n{_EPILOGUE}",
    )
