"""Names for cykafka's own layers above the client; applications do not need them.

``cykafka.compat``, ``cykafka.spark`` and ``pip_services4_kafka`` import these names from here.
They may change in any release.
"""

from cykafka._core.arrow.checksum import checksum
from cykafka._core.arrow.partitions import key_partitions
from cykafka._core.client.call import Call, list_topics
from cykafka._core.client.event_loop import Watch, watch
from cykafka._core.common.config import OWN_KEYS, check_config, known_properties
from cykafka._core.common.library import murmur2_hash
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.consume.committing import Commit
from cykafka._core.consume.consumer import (
    available,
    commit_within,
    consume_ranges,
    lag_of,
    seek_partition,
)
from cykafka._core.consume.lag import watermarks
from cykafka._core.consume.leaving import Leaving
from cykafka._core.consume.membership import Later, Rebalance
from cykafka._core.consume.offsets import committed, offsets_for_times, watermark_offsets
from cykafka._core.consume.ranges import Range, Ranges
from cykafka._core.envelope import EnvelopeCodec, EnvelopeError
from cykafka._core.produce.futures import Futures, RecordSender
from cykafka._core.produce.pieces import Pieces, split
from cykafka._core.produce.publication import (
    Publication,
    arrow_publication,
    close_now,
    end_transaction,
    flush,
    is_inherited,
    publication,
    transactions_of,
    undelivered,
)
from cykafka._run import pairs, run_app, run_command

__all__ = [
    "OWN_KEYS",
    "Call",
    "Commit",
    "EnvelopeCodec",
    "EnvelopeError",
    "Futures",
    "Later",
    "Leaving",
    "Pieces",
    "Publication",
    "Range",
    "Ranges",
    "Rebalance",
    "RecordSender",
    "Watch",
    "arrow_publication",
    "available",
    "check_config",
    "checksum",
    "close_now",
    "commit_within",
    "committed",
    "consume_ranges",
    "did_you_mean",
    "end_transaction",
    "flush",
    "is_inherited",
    "key_partitions",
    "known_properties",
    "lag_of",
    "list_topics",
    "murmur2_hash",
    "offsets_for_times",
    "pairs",
    "publication",
    "run_app",
    "run_command",
    "seek_partition",
    "split",
    "transactions_of",
    "undelivered",
    "watch",
    "watermark_offsets",
    "watermarks",
]
