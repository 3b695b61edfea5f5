"""Serve a run's state as OpenMetrics, for Prometheus and others; on loopback unless an address is given."""

import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bertbench.common.errors import ConfigError, system_reason
from bertbench.tracking.state import RunState

_LOOPBACK = "127.0.0.1"
_GAUGES: tuple[tuple[str, str, Callable[[RunState], float | None]], ...] = (
    ("step", "training steps taken", lambda s: s.step),
    ("samples", "training samples so far", lambda s: s.samples),
    ("loss", "loss of the last step", lambda s: s.loss),
    ("learning_rate", "learning rate of the last step", lambda s: s.learning_rate),
    ("gradient_norm", "norm of the last step's gradient", lambda s: s.grad_norm),
    ("clipped_ratio", "share of the last step's clipping decisions that made something smaller", lambda s: s.clipped),
    ("samples_per_second", "training samples per second of the last steps", lambda s: s.samples_per_s),
    ("accuracy", "accuracy of the last evaluation", lambda s: s.accuracy),
    ("target_accuracy", "accuracy at which the run ends", lambda s: s.target),
    ("elapsed_seconds", "time on the clock", lambda s: s.elapsed_s),
    ("silent_seconds", "time since the run last wrote", lambda s: s.silent_s),
    ("next_evaluation_seconds", "time to the next evaluation", lambda s: s.next_evaluation_s),
    ("target_seconds", "forecast of the time to the target", lambda s: s.target_s),
    ("straggler_rank", "the rank that the others wait for", lambda s: s.straggler),
)


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


def address(text: str) -> Address:
    """Return the address of `PORT` or `HOST:PORT`. Raises ConfigError where it is none."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--metrics-port {text}: expected a port from 1 to 65535, or HOST:PORT")
    return Address(host.strip("[]") or _LOOPBACK, int(port))


def check_free(place: Address) -> None:
    """Raise ConfigError if the address can't be listened on."""
    try:
        family = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        raise ConfigError(
            f"--metrics-port: {place.host} port {place.port} can't be used ({system_reason(error)}); name a free port "
            "of this machine"
        ) from error


def serve(place: Address, state: Callable[[], RunState]) -> None:
    """Answer scrapes from a thread of this process until it ends. Raises OSError where the port is taken."""
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric  # noqa: PLC0415 - an extra

    class Collector:
        def collect(self) -> Iterator[Metric]:
            now = state()
            labels = {"run": now.name, "system": now.system, "commit": now.commit or "", "seed": str(now.seed)}
            yield InfoMetricFamily("bertbench_run", "the run", labels)
            yield GaugeMetricFamily("bertbench_running", "1 while the run is running", float(now.status == "running"))
            for name, text, of in _GAUGES:
                if (value := of(now)) is not None:
                    yield GaugeMetricFamily(f"bertbench_{name}", text, value)
            phases = GaugeMetricFamily("bertbench_phase_seconds", "time on the clock by phase", labels=["phase"])
            for phase, seconds in now.phases_s.items():
                phases.add_metric([phase], seconds)
            yield phases
            busy = GaugeMetricFamily(
                "bertbench_rank_busy_cores", "cores that a rank keeps busy", labels=["rank", "host"]
            )
            memory = GaugeMetricFamily("bertbench_rank_memory_bytes", "memory of a rank", labels=["rank", "host"])
            for rank in now.ranks:
                busy.add_metric([str(rank.rank), rank.host], rank.busy)
                memory.add_metric([str(rank.rank), rank.host], rank.rss_bytes)
            yield from (busy, memory)

    registry = CollectorRegistry()
    registry.register(Collector())
    start_http_server(place.port, place.host, registry)
