"""How long a run will take, from first principles calibrated on published results. Nothing here imports torch."""
