"""Serve a run's state as OpenMetrics, for Prometheus and others; on loopback unless an address is given."""

import socket
from collections.abc import Callable, Iterator

from bertbench.common.errors import ConfigError, system_reason
from bertbench.tracking.state import RunState

_LOOPBACK = "127.0.0.1"
Address = tuple[str, int]
"""Host and port to listen on."""
_GAUGES = (
    ("step", "step", "training steps taken"),
    ("samples", "samples", "training samples so far"),
    ("loss", "loss", "loss of the last step"),
    ("learning_rate", "learning_rate", "learning rate of the last step"),
    ("gradient_norm", "grad_norm", "norm of the last step's gradient"),
    ("clipped_ratio", "clipped", "share of the last step's clipping decisions that made something smaller"),
    ("samples_per_second", "samples_per_s", "training samples per second of the last steps"),
    ("accuracy", "accuracy", "accuracy of the last evaluation"),
    ("target_accuracy", "target", "accuracy at which the run ends"),
    ("elapsed_seconds", "elapsed_s", "time on the clock"),
    ("silent_seconds", "silent_s", "time since the run last wrote"),
    ("next_evaluation_seconds", "next_evaluation_s", "time to the next evaluation"),
    ("target_seconds", "target_s", "forecast of the time to the target"),
    ("straggler_rank", "straggler", "the rank that the others wait for"),
)
"""Names of gauges, fields of RunState, help."""


def address(text: str) -> Address:
    """Return the address of `PORT` or `HOST:PORT`. Raises ConfigError where it is none."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--metrics-port {text}: expected a port from 1 to 65535, or HOST:PORT")
    return host.strip("[]") or _LOOPBACK, int(port)


def check_free(place: Address) -> None:
    """Raise ConfigError if the address can't be listened on."""
    try:
        family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise ConfigError(
            f"--metrics-port: {place[0]} port {place[1]} can't be used ({system_reason(error)}); name a free port "
            "of this machine"
        ) from error


def serve(place: Address, state: Callable[[], RunState]) -> None:
    """Answer scrapes from a thread of this process until it ends. Raises OSError where the port is taken."""
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric  # noqa: PLC0415 - an extra

    class Collector:
        def collect(self) -> Iterator[Metric]:
            now = state()
            labels = {"run": now.name, "system": now.system, "commit": str(now.commit or ""), "seed": str(now.seed)}
            yield InfoMetricFamily("bertbench_run", "the run", labels)
            yield GaugeMetricFamily("bertbench_running", "1 while the run is running", float(now.status == "running"))
            for name, field, text in _GAUGES:
                if (value := getattr(now, field)) is not None:
                    yield GaugeMetricFamily(f"bertbench_{name}", text, value)
            phases = GaugeMetricFamily("bertbench_phase_seconds", "time on the clock by phase", labels=["phase"])
            for phase, seconds in now.phases_s.items():
                phases.add_metric([phase], seconds)
            yield phases

    registry = CollectorRegistry()
    registry.register(Collector())
    host, port = place
    start_http_server(port, host, registry)
