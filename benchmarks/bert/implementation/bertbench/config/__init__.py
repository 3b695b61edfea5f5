"""Turn a system file into one frozen, validated `System`."""

from bertbench.config.load import load_system, pre_training_names, system_names
from bertbench.config.system import System

__all__ = ["System", "load_system", "pre_training_names", "system_names"]
