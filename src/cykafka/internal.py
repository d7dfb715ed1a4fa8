"""Names for cykafka's own layers above the client; applications do not need them.

``cykafka.compat``, ``cykafka.spark`` and ``pip_services4_kafka`` import these names from here.
They may change in any release.
"""

from cykafka._core.arrow.checksum import checksum
from cykafka._core.client.event_loop import Watch, watch
from cykafka._core.common.config import OWN_KEYS, check_config, known_properties
from cykafka._core.common.library import murmur2_hash
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.consume.consumer import commit_within, consume_ranges
from cykafka._core.consume.ranges import Range, Ranges
from cykafka._core.produce.publication import Publication, arrow_publication, publication
from cykafka._core.envelope import EnvelopeCodec, EnvelopeError
from cykafka._run import pairs, run_app, run_command

__all__ = [
    "OWN_KEYS",
    "EnvelopeCodec",
    "EnvelopeError",
    "Range",
    "Ranges",
    "check_config",
    "checksum",
    "commit_within",
    "consume_ranges",
    "did_you_mean",
    "known_properties",
    "murmur2_hash",
    "pairs",
    "run_app",
    "run_command",
]
