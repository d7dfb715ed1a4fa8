"""Names that the layers above the client share. They may change in any release.

cykafka's applications (``cykafka.cli``, ``cykafka.spark``, ``cykafka.compat``,
``pip_services4_kafka``) use the public modules, and these names:

- `OWN_KEYS`, `known_properties` and `check_config`, to check configurations, and `did_you_mean`,
  which suggests a similar key;
- `is_topic_name`, for names that the command and Spark check before they connect;
- `kafka_error`, the error inside an exception;
- `commit_within`, so that the command, the old client and the queues do not hang when they close;
- `Range`, `Ranges` and `consume_ranges`, with which the command and Spark read partitions from one
  offset to another.

Each remaining name serves one application. These names are compiled with the core, because they
use the core's C types: `EnvelopeCodec` and `EnvelopeError` (queues); `Pieces`, `split` and
`publication` (the command, for lines in files); `key_partitions` (Spark's sink); `murmur2_hash`
(the old client's partitioner).

The module `command_lines` runs the command lines of ``cykafka``, ``cykafka.spark`` and
``cykafka.testing``.
"""

from cykafka._core.arrow.partitioner import key_partitions
from cykafka._core.common.config import OWN_KEYS, check_config, known_properties
from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.library import murmur2_hash
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.common.partition import is_topic_name
from cykafka._core.consume.consumer import commit_within, consume_ranges
from cykafka._core.consume.fetcher import Range, Ranges
from cykafka._core.envelope.codec import EnvelopeCodec, EnvelopeError
from cykafka._core.produce.columns import Pieces, split
from cykafka._core.produce.producer import publication

__all__ = [
    "OWN_KEYS",
    "EnvelopeCodec",
    "EnvelopeError",
    "Pieces",
    "Range",
    "Ranges",
    "check_config",
    "commit_within",
    "consume_ranges",
    "did_you_mean",
    "is_topic_name",
    "kafka_error",
    "key_partitions",
    "known_properties",
    "murmur2_hash",
    "publication",
    "split",
]


def kafka_error(error: BaseException | KafkaError) -> KafkaError | None:
    """Return the KafkaError in a cykafka exception, or None."""
    found = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return found if isinstance(found, KafkaError) else None
