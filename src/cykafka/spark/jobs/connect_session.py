"""A session of Spark Connect for a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cykafka.spark.jobs.errors import explained
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.redaction import REDACTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cykafka.spark.jobs.config import JobConfig

__all__ = ["connect_session", "server_of"]

_PORT = 15002
_CONNECT_S = 30.0
_SETTINGS = {
    # Spark must not show secrets in plans or in its web UI.
    "spark.sql.redaction.options.regex": REDACTED,
    # For the dates of folders, and times in conditions.
    "spark.sql.session.timeZone": "UTC",
    # Keep the reports of many small micro-batches until the job reads them.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def server_of(config: JobConfig) -> str | None:
    """The address of the Spark Connect server, ``sc://...``; None for other masters."""
    given = config.master or config.spark.get("master") or os.environ.get("SPARK_REMOTE", "")
    return given if given.startswith("sc://") else None


def _reach(server: str) -> None:
    """Connect once: PySpark itself would retry for ten minutes."""
    address = urlsplit(server)
    place = (address.hostname or "localhost", address.port or _PORT)
    socket.create_connection(place, _CONNECT_S).close()


@contextmanager
def connect_session(config: JobConfig, server: str) -> Iterator[SparkSession]:
    """A session that ends with the block; the server goes on.

    Raises
    ------
    ConfigError
        The server does not let a session change a setting of the table `spark`.
    ImportError
        The packages of PySpark's extra ``connect`` are missing.
    RuntimeError
        The server does not answer.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        _reach(server)
        spark = SparkSession.builder.remote(server).create()
        _ = spark.version
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'pyspark[connect]'") from error
    except Exception as error:
        raise RuntimeError(
            f"cannot connect to Spark at {server.partition(';')[0]}: {explained(error)}"
        ) from error
    try:
        given = {
            name: value for name, value in config.spark_options().items() if name != "spark.master"
        }
        problems = []
        for name, value in {**_SETTINGS, **given}.items():
            try:
                spark.conf.set(name, value)
            except PySparkException:
                problems.append(
                    f'key "{name}": a session of Spark Connect cannot set it; set it where the '
                    "server starts"
                )
        if problems:
            raise ConfigError(problems)
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()
