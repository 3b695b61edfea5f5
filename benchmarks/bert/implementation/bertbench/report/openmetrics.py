"""Serve a run's state as OpenMetrics, for Prometheus and other programs; on loopback unless a host is given.

Each number in `bertbench watch --json` is a gauge with the same name.
"""

import socket
from collections.abc import Callable, Iterator

from bertbench.common.errors import ConfigError, system_reason
from bertbench.report.run_state import RunState

_LOOPBACK = "127.0.0.1"
Address = tuple[str, int]
"""The host and port to listen on."""


def address(text: str) -> Address:
    """Return the address that `PORT` or `HOST:PORT` means. Raises ConfigError for any other text."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--metrics-port {text}: expected a port from 1 to 65535, or HOST:PORT")
    return host.strip("[]") or _LOOPBACK, int(port)


def check_free(place: Address) -> None:
    """Raise ConfigError if the address can't be listened on."""
    try:
        socket.create_server(place, family=socket.AF_INET6 if ":" in place[0] else socket.AF_INET).close()
    except OSError as error:
        raise ConfigError(
            f"--metrics-port: port {place[1]} of {place[0]} can't be used ({system_reason(error)}); name a free port "
            "of this machine"
        ) from error


def serve(place: Address, state: Callable[[], RunState]) -> None:
    """Answer scrapes in a thread of this process until it ends. Raises OSError if the port is in use."""
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric  # noqa: PLC0415 - an extra

    class Collector:
        def collect(self) -> Iterator[Metric]:
            now = state()
            labels = {"run": now.name, "system": now.system, "commit": str(now.commit or ""), "seed": str(now.seed)}
            yield InfoMetricFamily("bertbench_run", "the run", labels)
            yield GaugeMetricFamily("bertbench_running", "1 while the run is running", float(now.status == "running"))
            for name, value in vars(now).items():
                if isinstance(value, int | float):
                    yield GaugeMetricFamily(f"bertbench_{name}", f"`{name}` of bertbench watch --json", value)
            phases = GaugeMetricFamily("bertbench_phase_seconds", "time on the clock by phase", labels=["phase"])
            for phase, seconds in now.phases_s.items():
                phases.add_metric([phase], seconds)
            yield phases

    registry = CollectorRegistry()
    registry.register(Collector())
    host, port = place
    start_http_server(port, host, registry)
