"""power_measurement.adoc: what a result's power files hold. Its text isn't dated by rounds; power is optional."""

from compliance.rules.rule import POWER_RULES, Rule, Source

_REMEDY = "measure every node of every run again, from before run_start to after run_stop"

POWER_FILES = Rule(
    "power-files", Source("mlcommons/logging, package_checker", "power_checker"),
    "Each run has power files node_<k>.txt and sw_<k>.txt, counted from 0, as many in each run", _REMEDY,
)  # fmt: skip
POWER_NODES = Rule(
    "power-nodes", Source(POWER_RULES, "Measure All Nodes"), "All nodes of a run are measured", _REMEDY,
)  # fmt: skip
POWER_INTERCONNECT = Rule(
    "power-interconnect", Source(POWER_RULES, "Measure or Estimate Interconnects"),
    "The interconnect of several nodes is measured or estimated", _REMEDY,
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
    "Readings are watts, and what a file states once has one value", _REMEDY,
)  # fmt: skip
RULES = (POWER_FILES, POWER_NODES, POWER_INTERCONNECT, POWER_COVERAGE, POWER_RATE, POWER_READINGS)
