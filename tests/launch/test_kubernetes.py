"""The example of benchmarks/bert/launch/kubernetes.yaml: valid for Kubernetes, and the run that `launch` describes."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from bertbench.common.paths import LAUNCH
from bertbench.config import load_system
from bertbench.launch.command_lines import Job, torchrun_lines

SYSTEM = "dgxa100_n8"
PULLS_IMAGE_S = 300


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """The objects of the file, by kind."""
    return {content["kind"]: content for content in yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())}


@pytest.mark.parametrize("kind", ["Service", "Job"])
def test_kubernetes_accepts_the_example(manifest: dict[str, Any], kind: str) -> None:
    kubernetes_validate.validate(manifest[kind], "1.30", strict=True)


def test_a_pod_runs_the_line_that_launch_prints_for_a_node(manifest: dict[str, Any]) -> None:
    job, service = manifest["Job"], manifest["Service"]
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    first_pod = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    (container,) = pod["containers"]
    line = torchrun_lines(Job(load_system(SYSTEM), SYSTEM, [], 1))[0]
    replaced = {
        "--node-rank=0": "--node-rank=$(JOB_COMPLETION_INDEX)",
        "--master-addr=$MASTER_ADDR": f"--master-addr={first_pod}",
        line[-2]: "/workspace/bertbench/run_and_time.sh",  # where the image has it
    }
    assert container["command"] == [replaced.get(word, word) for word in line]
    assert pod["subdomain"] == service["metadata"]["name"]


def test_the_job_has_the_nodes_gpus_and_time_of_its_system(manifest: dict[str, Any]) -> None:
    system, spec = load_system(SYSTEM), manifest["Job"]["spec"]
    assert spec["completions"] == spec["parallelism"] == system.hardware.number_of_nodes
    assert spec["activeDeadlineSeconds"] == 60 * system.launch.walltime_minutes + PULLS_IMAGE_S
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == str(system.launch.ranks_per_node)
