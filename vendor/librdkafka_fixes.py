"""Faults of librdkafka that are mended in the source before it is built.

Only what no caller can avoid belongs here, as small as it can be; a version that has a fault
mended itself simply does not have the place any more. Who links to another librdkafka has that
one's faults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from librdkafka_source import SourceError


@dataclass(frozen=True)
class Fix:
    """One replacement in one file: of the first `old` behind the first match of `after`."""

    name: str
    file: str
    after: str
    old: str
    new: str

    def apply(self, tree: Path) -> bool:
        """Whether the place was there, and is changed now."""
        path = tree / self.file
        if not path.is_file():
            return False
        text = path.read_text(encoding="utf-8")
        anchor = re.search(self.after, text)
        if anchor is None:
            return False
        place = text.find(self.old, anchor.end())
        if place < 0:
            return False
        path.write_text(text[:place] + self.new + text[place + len(self.old) :], encoding="utf-8")
        return True


FIXES = (
    # A consumer that has left its group throws away what it is still asked, as by
    # rd_kafka_assign() in a rebalance callback while it closes: the caller waits without end for
    # an answer. It is answered as everything that is asked a moment later.
    Fix(
        "an answer for each request when a consumer has left its group",
        "src/rdkafka_cgrp.c",
        r"unlikely\(rd_atomic32_get\(&rkcg->rkcg_terminated\) == rd_true\)\) \{\s*if \(rko\)\s*",
        "rd_kafka_op_destroy(rko)",
        "rd_kafka_op_reply(rko, RD_KAFKA_RESP_ERR__DESTROY)",
    ),
    # A consumer that is destroyed without being closed, with an assignment nobody has polled for:
    # librdkafka gives the assignment up, but goes on waiting for the application to take it.
    Fix(
        "no wait for the application to take an assignment when there is none any more",
        "src/rdkafka_cgrp.c",
        r"void rd_kafka_cgrp_terminate0\([^)]*\) \{",
        "rd_kafka_cgrp_unassign(rkcg);",
        "{ if (rkcg->rkcg_join_state == RD_KAFKA_CGRP_JOIN_STATE_WAIT_ASSIGN_CALL) "
        "rd_kafka_cgrp_set_join_state(rkcg, RD_KAFKA_CGRP_JOIN_STATE_WAIT_UNASSIGN_CALL); "
        "rd_kafka_cgrp_unassign(rkcg); }",
    ),
    # An admin client that is told of another coordinator when it asks for a group's offsets: it is
    # no member of a group, and what it would have look for the coordinator is NULL. It is for
    # AdminClient.list_consumer_group_offsets(), which the queues of pip_services4_kafka call, too.
    Fix(
        "no crash of an admin client when a group's offsets are at another coordinator",
        "src/rdkafka_request.c",
        r"\nrd_kafka_handle_OffsetFetch\(rd_kafka_t \*rk,",
        "rd_kafka_cgrp_op(rkb->rkb_rk->rk_cgrp,",
        "if (rkb->rkb_rk->rk_cgrp) rd_kafka_cgrp_op(rkb->rkb_rk->rk_cgrp,",
    ),
    # A broker's thread sleeps through the whole wait between two connections, which grows to
    # reconnect.backoff.max.ms, and looks for messages that have timed out only after it.
    Fix(
        "messages of a broker that is away time out on time",
        "src/rdkafka_broker.c",
        r"backoff =\s*rd_kafka_broker_reconnect_backoff\(rkb, rd_clock\(\)\);",
        "rd_kafka_broker_serve(rkb, (int)backoff)",
        "rd_kafka_broker_serve(rkb, RD_MIN((int)backoff, rd_kafka_max_block_ms))",
    ),
    # A broker that has just started may name topics and no brokers, itself not either. librdkafka
    # gives up every broker that an answer does not name, those of bootstrap.servers too: nobody
    # is left to be asked again, and the client sends and reads nothing any more.
    Fix(
        "brokers stay known when an answer names none",
        "src/rdkafka_metadata.c",
        r"\nstatic void rd_kafka_metadata_decommission_unavailable_brokers\(",
        "if (!has_learned_brokers) {",
        "if (!has_learned_brokers || md->broker_cnt == 0) {",
    ),
)


def apply_all(tree: Path, *, required: bool) -> list[str]:
    """Mend the source in `tree`, which is changed; the names of what was done.

    Raises
    ------
    SourceError
        `required`, and a place is not there: the source is not what the version's number says.
    """
    done = []
    for fix in FIXES:
        if fix.apply(tree):
            done.append(fix.name)
        elif required:
            raise SourceError(f"{fix.file} has no place for: {fix.name}")
    return done
