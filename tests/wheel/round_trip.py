"""Send records through the embedded cluster with only the installed wheel."""

import sys
from pathlib import Path

import cykafka
from cykafka.testing import MockCluster

RECORDS = 1_000
TIMEOUT_S = 30


def loaded_librdkafka() -> set[Path]:
    """The files named librdkafka* that this process has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in maps if "/librdkafka" in line}


def main() -> None:
    package = Path(cykafka.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} does not come from the wheel"
    assert cykafka.build_info()["missing_patches"] == []

    wanted = {b"%d" % number for number in range(RECORDS)}
    failed = []
    with MockCluster() as cluster:
        cluster.create_topic("wheel", 3)
        producer = cykafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for value in wanted:
            producer.produce(
                "wheel",
                value,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(TIMEOUT_S) == 0, "records are left in the queue"
        producer.close()
        assert not failed, failed

        consumer = cykafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "wheel",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["wheel"])
        read: list[bytes] = []
        while len(read) < RECORDS:
            messages = consumer.consume(RECORDS, timeout=TIMEOUT_S)
            assert messages, f"only {len(read)} of {RECORDS} records arrived"
            for message in messages:
                assert message.error() is None, message.error()
                read.append(message.value())
        consumer.close()
    assert set(read) == wanted
    assert len(read) == RECORDS

    libraries = loaded_librdkafka()
    assert len(libraries) == 1, libraries
    assert libraries.pop().is_relative_to(sys.prefix), "librdkafka does not come from the wheel"
    version, _ = cykafka.libversion()
    print(f"{RECORDS} records there and back with cykafka on librdkafka {version}")


if __name__ == "__main__":
    main()
