"""power_measurement.adoc: the content of a result's power files. The text has no rounds; power is optional."""

from compliance.rules.rule import POWER_RULES, Rule, Source

_REMEDY = "repeat the runs, and measure every node from before run_start to after run_stop"

POWER_FILES = Rule(
    "power-files", Source("mlcommons/logging, package_checker", "power_checker"),
    "Every run has the same number of power files node_<k>.txt and sw_<k>.txt, numbered from 0", _REMEDY,
)  # fmt: skip
POWER_NODES = Rule(
    "power-nodes", Source(POWER_RULES, "Measure All Nodes"), "All nodes of a run are measured", _REMEDY,
)  # fmt: skip
POWER_INTERCONNECT = Rule(
    "power-interconnect", Source(POWER_RULES, "Measure or Estimate Interconnects"),
    "With several nodes, the power of their interconnect is measured or estimated", _REMEDY,
)  # fmt: skip
POWER_COVERAGE = Rule(
    "power-coverage", Source(POWER_RULES, "Measure max(a run, 60 power samples)"),
    "A measurement begins before run_start and ends after run_stop", _REMEDY,
)  # fmt: skip
POWER_RATE = Rule(
    "power-rate", Source(POWER_RULES, "Report 1 Measurement per Second"), "Power is read at least once a second",
    _REMEDY,
)  # fmt: skip
POWER_READINGS = Rule(
    "power-readings", Source("mlcommons/logging, result_summarizer", "_compute_total_power"),
    "Readings are in watts, and a file has only one start, stop, efficiency and estimate", _REMEDY,
)  # fmt: skip
RULES = (POWER_FILES, POWER_NODES, POWER_INTERCONNECT, POWER_COVERAGE, POWER_RATE, POWER_READINGS)
