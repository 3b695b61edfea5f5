"""Configuration: a system file in, one frozen, validated `System` out."""

from bertbench.config.load import load_system, system_names
from bertbench.config.system import System

__all__ = ["System", "load_system", "system_names"]
