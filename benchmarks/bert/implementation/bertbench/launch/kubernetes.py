"""Write Kubernetes manifests from a system file: a Kubeflow TrainJob, or a JobSet where Kubeflow isn't installed.

Sources: Kubeflow Trainer from 2.3 (trainer.kubeflow.org/v1alpha1, with runtimePatches), JobSet
(jobset.x-k8s.io/v1alpha2). A site names its image and its volume claims in CONT, DATA_CLAIM and RUNS_CLAIM, and in RDMA
the resource of its network cards' device plugin, such as rdma/hca_shared_devices_a, with =N for N of them.
"""

import json
import os
import re
from dataclasses import replace
from string import Template
from textwrap import indent
from typing import Literal

import yaml

from bertbench.common.errors import ConfigError
from bertbench.config.load import is_path, whole_file
from bertbench.launch.command_lines import Job, torchrun_line, torchrun_restarts
from bertbench.launch.image import image_for
from bertbench.launch.time_limits import minutes_of
from bertbench.launch.variables import FOLDERS, RECORD, Variables

Kind = Literal["trainjob", "jobset"]

_IN_IMAGE = "/workspace/bertbench/run_and_time.sh"
_PORT = 29500
_SPARE_SECONDS = 300  # for pulling the image
# What Kubernetes accepts: docs/concepts/overview/working-with-objects/names, and docker's reference for images
_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"  # DNS-1035
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_PART}(\.{_PART})*"  # DNS-1123
_RESOURCE = rf"{_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_COMPONENT = r"[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?"
_TAG = r":[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}"
_DIGEST = r"@[a-z0-9.+_-]+:[0-9a-fA-F]{32,}"
_IMAGE = rf"({_HOST}/)?{_COMPONENT}(/{_COMPONENT})*({_TAG})?({_DIGEST})?"

# Kubeflow's runtime `torch-distributed` gives torchrun nodes, ranks and the master in PET_* variables.
_TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: $metadata
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: $image
    command: $command
    env: [{name: DATADIR, value: /data}, {name: LOGDIR, value: /runs}$flow_variables]
    numNodes: $nodes
    numProcPerNode: $ranks
    resourcesPerNode: {limits: {$limits}}
  activeDeadlineSeconds: $seconds
  runtimePatches:
  - manager: bertbench
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template:
              spec:
                template:
                  spec:
                    volumes: [
                      {name: data, persistentVolumeClaim: {claimName: $data, readOnly: true}},
                      {name: runs, persistentVolumeClaim: {claimName: $runs}},
                      # ranks of a node share memory: the default of 64 MB is too little for NCCL
                      {name: shared-memory, emptyDir: {medium: Memory}}$volume]
                    containers:
                    - name: node
                      securityContext: {capabilities: {add: [$capabilities]}}
                      volumeMounts: [
                        {name: data, mountPath: /data, readOnly: true},
                        {name: runs, mountPath: /runs},
                        {name: shared-memory, mountPath: /dev/shm}$mount]
"""
# One indexed Job with one pod per node; JobSet's headless service gives the first pod a name that resolves.
_JOB_SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: $metadata
spec:
  replicatedJobs:
  - name: node
    replicas: 1
    template:
      spec:
        parallelism: $nodes
        completions: $nodes
        completionMode: Indexed
        backoffLimit: 0
        activeDeadlineSeconds: $seconds
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: node
              image: $image
              command: $command
              securityContext: {capabilities: {add: [$capabilities]}}
              env:
              - {name: DATADIR, value: /data}
              - {name: LOGDIR, value: /runs}$block_variables
              - name: NODE_RANK
                valueFrom:
                  fieldRef:
                    fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
              volumeMounts: [
                {name: data, mountPath: /data, readOnly: true},
                {name: runs, mountPath: /runs},
                {name: shared-memory, mountPath: /dev/shm}$mount]
              resources: {limits: {$limits}}
            volumes: [
              {name: data, persistentVolumeClaim: {claimName: $data, readOnly: true}},
              {name: runs, persistentVolumeClaim: {claimName: $runs}},
              # ranks of a node share memory: the default of 64 MB is too little for NCCL
              {name: shared-memory, emptyDir: {medium: Memory}}$volume]
"""


def _time_limit_s(job: Job) -> int:
    """Return the job's time limit: that of WALLTIME, or else the system's plus the time to pull an image."""
    if job.variables.walltime is not None:
        return 60 * minutes_of(job.variables.walltime)
    return 60 * job.system.launch.walltime_minutes + _SPARE_SECONDS


def _record(variables: Variables) -> str:
    """Return the entry of a pod's environment that records honoured variables, if there are any but the site's."""
    values = {name: value for name, value in variables.values.items() if name not in (*FOLDERS, "CONT")}
    return f"{{name: {RECORD}, value: {json.dumps(Variables(values).record())}}}" if values else ""


def manifest(job: Job, kind: Kind) -> str:
    """Return the YAML of one run for `kubectl create -f -`.

    A user's own system file goes into a ConfigMap, with the files that it extends merged in. Raises ConfigError if the
    site's settings don't name an image, and for a name that Kubernetes refuses.
    """
    image = os.environ.get("CONT")
    if not image:
        raise ConfigError(
            "CONT isn't set; set it to an image in a registry that the cluster's nodes reach, as in "
            "registry.example.org/bertbench:1"
        )
    image = image_for("kubernetes", image)
    _check("CONT", image, _IMAGE, "an image as Kubernetes names it, such as registry.example.org/bertbench:1")
    data_claim = _claim("DATA_CLAIM", "bertbench-data")
    runs_claim = _claim("RUNS_CLAIM", "bertbench-runs")
    system = job.system
    nodes = system.hardware.number_of_nodes
    ranks_per_node = system.launch.ranks_per_node
    limits = []
    if system.launch.device == "cuda":
        limits.append(f'nvidia.com/gpu: "{ranks_per_node}"')
    network_cards = _network_cards()
    if network_cards is not None:  # this limit gives them to a pod
        limits.append(network_cards)
    name = _object_name(system.name, nodes)
    metadata = f"{{name: {_plain_or_quoted(name)}}}"
    file = f"{system.name}.json"
    brings_file = is_path(job.name_or_path)
    in_pod = replace(job, name_or_path=f"/systems/{file}") if brings_file else job
    if kind == "trainjob":
        template = _TRAIN_JOB
        command = ["torchrun", *torchrun_restarts(job), "--no-python", _IN_IMAGE, in_pod.name_or_path, *job.options]
    else:
        template = _JOB_SET
        command = torchrun_line(in_pod, "$(NODE_RANK)", f"{name}-node-0-0.{name}", _PORT, _IN_IMAGE)
    record = _record(job.variables)
    objects = Template(template).substitute(
        metadata=metadata,
        image=json.dumps(image),
        command=json.dumps(command),
        nodes=nodes,
        ranks=ranks_per_node,
        limits=", ".join(limits),
        capabilities="IPC_LOCK" if network_cards else "",  # network cards need pinned memory
        seconds=_time_limit_s(job),
        flow_variables=f", {record}" if record else "",
        block_variables=f"\n              - {record}" if record else "",
        data=_plain_or_quoted(data_claim),
        runs=_plain_or_quoted(runs_claim),
        volume=f", {{name: systems, configMap: {metadata}}}" if brings_file else "",
        mount=", {name: systems, mountPath: /systems, readOnly: true}" if brings_file else "",
    )
    if not brings_file:
        return objects
    text = indent(whole_file(job.name_or_path), "    ")
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\ndata:\n  {file}: |\n{text}---\n{objects}"


def _network_cards() -> str | None:
    """Return the limit that gives a pod the network cards of RDMA; None if it isn't set. Raises ConfigError."""
    resource, _, number = os.environ.get("RDMA", "").partition("=")
    if not resource:
        return None
    number = number or "1"
    _check("RDMA", resource, _RESOURCE, "a resource such as rdma/hca_shared_devices_a=1")
    _check("RDMA", number, r"[1-9][0-9]*", "a resource and a whole number, such as rdma/hca_shared_devices_a=1")
    return f'{resource}: "{number}"'


def _object_name(system: str, nodes: int) -> str:
    """Return the name of the job's objects. Raises ConfigError if its last pod's name wouldn't be a DNS label.

    JobSet names pods <name>-node-0-<number>-<5 letters>, and a TrainJob becomes a JobSet, too.
    """
    name = re.sub("[_.]", "-", system.lower())
    pod = f"{name}-node-0-{nodes - 1}-abcde"
    if re.fullmatch(_LABEL, name) is None:
        raise ConfigError(
            f"{system}: Kubernetes can't name a job {name!r}; a name must begin with a letter and end with a letter or "
            f"digit; rename the system's file"
        )
    if len(pod) > _LABEL_LENGTH:
        raise ConfigError(
            f"{system}: its pods would be named like {pod}, {len(pod)} characters; Kubernetes allows {_LABEL_LENGTH}; "
            f"shorten the name of the system's file to {_LABEL_LENGTH - len(pod) + len(name)} characters"
        )
    return name


def _claim(variable: str, default: str) -> str:
    claim = os.environ.get(variable) or default
    expected = f"the name of a volume claim: lowercase letters, digits, - and ., at most {_SUBDOMAIN_LENGTH} characters"
    _check(variable, claim, rf"(?=.{{1,{_SUBDOMAIN_LENGTH}}}$){_SUBDOMAIN}", expected)
    return claim


def _check(variable: str, value: str, pattern: str, expected: str) -> None:
    if re.fullmatch(pattern, value) is None:
        raise ConfigError(f"{variable} is {value!r}: expected {expected}")


def _plain_or_quoted(name: str) -> str:
    """Return a name for YAML, in quotes if YAML would read it as something else, such as `true`, `on` and `12`."""
    return name if yaml.safe_load(name) == name else json.dumps(name)
