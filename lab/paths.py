"""Locate the laboratory's own files."""

from pathlib import Path

STUDIES = Path(__file__).with_name("studies")
"""Definitions of studies, a JSON file each."""
