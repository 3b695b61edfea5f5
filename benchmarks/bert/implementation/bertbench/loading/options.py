"""Choices that a command line offers; this file imports nothing, so that help and mistakes need no torch."""

from typing import Literal

OnBadSample = Literal["fail", "skip"]
"""What to do with a training sample that is found damaged: end the run, or leave the sample out and count it."""
