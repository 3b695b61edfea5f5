"""Choices of the command line; this file imports nothing, so that help and usage errors need no torch."""

from typing import Literal

OnBadSample = Literal["fail", "skip"]
"""How to treat a damaged training sample: end the run, or leave the sample out and count it."""
