"""Forecast a run's time from first principles, calibrated on published results. Nothing here imports torch."""
