"""Kubernetes manifests from a system file: a Kubeflow TrainJob, or a JobSet where Kubeflow isn't installed.

Sources: Kubeflow Trainer from 2.3 (trainer.kubeflow.org/v1alpha1, with runtimePatches), JobSet
(jobset.x-k8s.io/v1alpha2). A site names its image and its volume claims in CONT, DATA_CLAIM and RUNS_CLAIM.
"""

import os
from typing import Any, Literal

import yaml

from bertbench.config.load import is_path, whole_file
from bertbench.launch.job import Job
from bertbench.launch.torchrun import restarts, torchrun

Kind = Literal["trainjob", "jobset"]

_IN_IMAGE = "/workspace/bertbench/run_and_time.sh"
_SYSTEMS = "/systems"
_PORT = 29500
_SPARE_SECONDS = 300  # for pulling the image


class _Readable(yaml.SafeDumper):
    """Write texts of several lines, such as a system file, line by line."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return a literal block for several lines, else YAML's default style."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _Readable.represent_text)


def manifest(job: Job, kind: Kind) -> str:
    """Return the YAML of one run for `kubectl create -f -`.

    A ConfigMap carries a user's own system file, with the files that it extends merged in.
    """
    made = [_train_job(job) if kind == "trainjob" else _job_set(job)]
    if is_path(job.name_or_path):
        content = {f"{job.system.name}.json": whole_file(job.name_or_path)}
        made.insert(0, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _name(job)}, "data": content})
    return yaml.dump_all(made, Dumper=_Readable, sort_keys=False)


def _name(job: Job) -> str:
    return job.system.name.lower().replace("_", "-").replace(".", "-")


def _in_pod(job: Job) -> Job:
    """Return the job with its system where the pods see it."""
    return job._replace(name_or_path=f"{_SYSTEMS}/{job.system.name}.json") if is_path(job.name_or_path) else job


def _train_job(job: Job) -> dict[str, Any]:
    """Kubeflow's runtime `torch-distributed` gives torchrun nodes, ranks and the master in PET_* variables."""
    launch = job.system.launch
    pod = {"volumes": _volumes(job), "containers": [{"name": "node", "volumeMounts": _mounts(job)}]}
    pods = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": _name(job)},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": _image(),
                "command": [
                    "torchrun",
                    *restarts(job),
                    "--no-python",
                    _IN_IMAGE,
                    _in_pod(job).name_or_path,
                    *job.options,
                ],
                "env": _environment(),
                "numNodes": job.system.hardware.number_of_nodes,
                "numProcPerNode": launch.ranks_per_node,
                **({"resourcesPerNode": {"limits": _gpus(job)}} if launch.device == "cuda" else {}),
            },
            "activeDeadlineSeconds": _deadline(job),
            "runtimePatches": [
                {
                    "manager": "bertbench",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [pods]}}},
                }
            ],
        },
    }


def _job_set(job: Job) -> dict[str, Any]:
    """One indexed Job with a pod a node; JobSet's headless service gives the first pod a name that resolves."""
    name, nodes = _name(job), job.system.hardware.number_of_nodes
    container: dict[str, Any] = {
        "name": "node",
        "image": _image(),
        "command": torchrun(_in_pod(job), "$(NODE_RANK)", f"{name}-node-0-0.{name}", _PORT, _IN_IMAGE),
        "env": [
            *_environment(),
            {
                "name": "NODE_RANK",
                "valueFrom": {
                    "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
                },
            },
        ],
        "volumeMounts": _mounts(job),
    }
    if job.system.launch.device == "cuda":
        container["resources"] = {"limits": _gpus(job)}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": _volumes(job)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "parallelism": nodes,
                            "completions": nodes,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "activeDeadlineSeconds": _deadline(job),
                            "template": {"spec": pod},
                        }
                    },
                }
            ]
        },
    }


def _deadline(job: Job) -> int:
    return 60 * job.system.launch.walltime_minutes + _SPARE_SECONDS


def _image() -> str:
    return os.environ.get("CONT", "bertbench")


def _environment() -> list[dict[str, Any]]:
    return [{"name": "DATADIR", "value": "/data"}, {"name": "LOGDIR", "value": "/runs"}]


def _gpus(job: Job) -> dict[str, str]:
    return {"nvidia.com/gpu": str(job.system.launch.ranks_per_node)}


def _volumes(job: Job) -> list[dict[str, Any]]:
    return [
        {
            "name": "data",
            "persistentVolumeClaim": {"claimName": os.environ.get("DATA_CLAIM", "bertbench-data"), "readOnly": True},
        },
        {"name": "runs", "persistentVolumeClaim": {"claimName": os.environ.get("RUNS_CLAIM", "bertbench-runs")}},
        # ranks of a node share memory; the default 64 MB is too little for NCCL
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        *([{"name": "systems", "configMap": {"name": _name(job)}}] if is_path(job.name_or_path) else []),
    ]


def _mounts(job: Job) -> list[dict[str, Any]]:
    return [
        {"name": "data", "mountPath": "/data", "readOnly": True},
        {"name": "runs", "mountPath": "/runs"},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        *([{"name": "systems", "mountPath": _SYSTEMS, "readOnly": True}] if is_path(job.name_or_path) else []),
    ]
