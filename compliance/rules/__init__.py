"""MLPerf's rules, one file per section: they decide the verdict, and nothing else does."""

from compliance.rules import (
    benchmark_results,
    convergence_points,
    data_set,
    divisions,
    fixed_values,
    hyperparameters,
    power_measurement,
    quality_measure,
    random_numbers,
    records,
    run_results,
    submission,
)
from compliance.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *records.RULES,
    *divisions.RULES,
    *random_numbers.RULES,
    *data_set.RULES,
    *hyperparameters.RULES,
    *fixed_values.RULES,
    *quality_measure.RULES,
    *run_results.RULES,
    *benchmark_results.RULES,
    *convergence_points.RULES,
    *submission.RULES,
    *power_measurement.RULES,
)
