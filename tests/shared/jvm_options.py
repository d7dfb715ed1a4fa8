"""The login options of Kafka's JVM client, as options of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def login(config: Mapping[str, str], module: str) -> dict[str, str]:
    """The options of a SASL user by JAAS. With TLS the authority's certificate is in a file."""
    options = {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "kafka.security.protocol": config["security.protocol"],
        "kafka.sasl.mechanism": config["sasl.mechanism"],
        "kafka.sasl.jaas.config": f"{module} required "
        f'username="{config["sasl.username"]}" password="{config["sasl.password"]}";',
    }
    if "ssl.ca.location" in config:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = config["ssl.ca.location"]
    return options


def certificate(config: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
    """The options of a client certificate, as texts or as files in a folder."""
    texts = {
        name: Path(config[f"ssl.{name}.location"]).read_text()
        for name in ("ca", "certificate", "key")
    }
    stores = {
        "truststore.certificates": texts["ca"],
        "keystore.certificate.chain": texts["certificate"],
        "keystore.key": texts["key"],
    }
    if folder is not None:
        (folder / "store.pem").write_text(texts["key"] + texts["certificate"])
        stores = {
            "truststore.location": config["ssl.ca.location"],
            "keystore.location": str(folder / "store.pem"),
        }
    return {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.type": "PEM",
        **{f"kafka.ssl.{name}": value for name, value in stores.items()},
    }
