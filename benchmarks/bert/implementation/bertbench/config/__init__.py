"""Turn a system file into one frozen, validated `System`."""

from bertbench.config.load import load_system, system_names
from bertbench.config.system import System

__all__ = ["System", "load_system", "system_names"]
