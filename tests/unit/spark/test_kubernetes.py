"""The files of docs/kubernetes: valid for Kubernetes, and in agreement with one another."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cykafka.spark.jobs.command import main

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "kubernetes"
RECIPE = (FOLDER / "Dockerfile").read_text()
GUIDE = (ROOT / "docs" / "spark-kubernetes.md").read_text()
PORT = 9464
# The schema of the operator's resource is not in the packages of Kubernetes' schemas.
OWN = "SparkApplication"


def documents() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(FOLDER.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        each for each in documents() if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pod of each job."""
    cron = named("CronJob", "archive")["spec"]["jobTemplate"]["spec"]
    return {
        "archive": cron["template"]["spec"],
        "mirror": named("Deployment", "mirror")["spec"]["template"]["spec"],
    }


def defaults() -> dict[str, str]:
    """Spark's settings."""
    lines = named("ConfigMap", "cykafka-spark")["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


@pytest.mark.parametrize(
    "document",
    [each for each in documents() if each["kind"] != OWN],
    ids=lambda each: f"{each['kind']}-{each['metadata']['name']}",
)
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_manifest_is_valid(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_manifest_with_an_unknown_key_is_invalid() -> None:
    document = named("Deployment", "mirror")
    document["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError, match="livenesProbe"):
        kubernetes_validate.validate(document, "1.30", strict=True)


def test_image_has_what_the_jobs_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {each for each in project["optional-dependencies"]["spark"] if "pyspark" not in each}
    (python,) = re.findall(r"ARG PYTHON=([\d.]+)", RECIPE)

    assert set(re.findall(r"'([\w-]+>=[\d.]+)'", RECIPE)) == needed
    assert tuple(map(int, python.split("."))) >= (3, 11)


@pytest.mark.parametrize("job", ["archive", "mirror"])
def test_command_of_the_pod_is_right(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = pods()[job]
    (container,) = pod["containers"]
    values = {each["name"]: f"value-of-{each['name']}" for each in container["env"]}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    texts = named("ConfigMap", pod["volumes"][0]["configMap"]["name"])["data"]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    start = ["tini", "--", "python3", "-m", "cykafka.spark"]
    arguments = [
        re.sub(r"\$\((\w+)\)", lambda each: values[each[1]], words).replace(
            f"--config={mounts['jobs']}/", f"--config={tmp_path}/"
        )
        for words in container["args"]
    ]

    assert arguments[: len(start)] == start
    assert main([*arguments[len(start) :], "--print-config"]) == 0
    written = tomllib.loads(capsys.readouterr().out)

    assert written["spark"]["driver.host"] == "value-of-POD_IP"
    assert written["kafka"]["sasl.password"] == "********"
    for key in ("path", "checkpoint"):
        assert written.get(key, mounts["data"]).startswith(mounts["data"])
    assert pod["terminationGracePeriodSeconds"] > written["stop_timeout"]


def test_files_agree_about_names_users_and_paths() -> None:
    settings, operator = defaults(), named(OWN, "mirror")["spec"]
    images = {settings["spark.kubernetes.container.image"], operator["image"]}
    users = {operator[each]["securityContext"]["runAsUser"] for each in ("driver", "executor")}
    secrets = [each["valueFrom"]["secretKeyRef"] for each in operator["driver"]["env"]]
    claims = {settings[
        "spark.kubernetes.executor.volumes.persistentVolumeClaim.data.options.claimName"
    ]}  # fmt: skip
    places = {settings["spark.kubernetes.executor.volumes.persistentVolumeClaim.data.mount.path"]}
    for pod in pods().values():
        (container,) = pod["containers"]
        images.add(container["image"])
        users.add(pod["securityContext"]["runAsUser"])
        assert named("ServiceAccount", pod["serviceAccountName"])
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert named("ConfigMap", volume["configMap"]["name"])
            else:
                claims.add(volume["persistentVolumeClaim"]["claimName"])
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        places.add(mounts["data"])
        assert mounts["spark"] == re.findall(r"SPARK_HOME=(\S+)", RECIPE)[0] + "/conf"
        for variable in container["env"]:
            if "secretKeyRef" in variable["valueFrom"]:
                secrets.append(variable["valueFrom"]["secretKeyRef"])
    for each in ("driver", "executor"):
        places.add(operator[each]["volumeMounts"][0]["mountPath"])
    claims.add(operator["volumes"][0]["persistentVolumeClaim"]["claimName"])

    assert len(images) == len(claims) == len(places) == 1
    assert named("PersistentVolumeClaim", claims.pop())
    (secret,) = {(each["name"], each["key"]) for each in secrets}
    for text in ((FOLDER / "base.yaml").read_text(), GUIDE):
        assert f"kubectl create secret generic {secret[0]} --from-literal={secret[1]}=" in text
    assert users == {int(each) for each in re.findall(r"^USER (\d+)", RECIPE, re.MULTILINE)}
    assert set(re.findall(r"--[gu]id (\d+)", RECIPE)) == set(map(str, users))
    program = operator["mainApplicationFile"].removeprefix("local://")
    assert f"COPY job.py {program}" in RECIPE
    configuration = operator["driver"]["configMaps"][0]
    data = named("ConfigMap", configuration["name"])["data"]
    assert operator["arguments"][1].removeprefix(f"--config={configuration['path']}/") in data
    assert operator["sparkVersion"] == re.findall(r"ARG SPARK=([\d.]+)-", RECIPE)[0]


def test_manifests_hold_no_secret() -> None:
    # `kubectl apply` of a placeholder would replace the real one.
    assert "Secret" not in {document["kind"] for document in documents()}


def test_manifests_work_in_any_namespace() -> None:
    assert not [document for document in documents() if "namespace" in document["metadata"]]
    assert "spark.kubernetes.namespace" not in defaults()
    for pod in pods().values():
        (container,) = pod["containers"]
        (variable,) = (each for each in container["env"] if each["name"] == "POD_NAMESPACE")
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
        assert "--spark-conf=kubernetes.namespace=$(POD_NAMESPACE)" in container["args"]


def test_probes_ask_the_port_of_the_metrics() -> None:
    deployment = named("Deployment", "mirror")["spec"]["template"]
    (container,) = deployment["spec"]["containers"]
    (port,) = container["ports"]
    checks = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    probes = [check["httpGet"] for check in checks]

    assert port["containerPort"] == PORT
    assert deployment["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)
    assert {probe["port"] for probe in probes} == {port["name"]}
    # As in the guide: one second, the default, is short for a driver that is busy.
    assert {check["timeoutSeconds"] for check in checks} == {5}
    job = tomllib.loads(named("ConfigMap", "cykafka-jobs")["data"]["mirror.toml"])
    assert job["metrics"] == f"0.0.0.0:{PORT}"
    assert {probe["path"] for probe in probes} == {"/health", "/ready"}
