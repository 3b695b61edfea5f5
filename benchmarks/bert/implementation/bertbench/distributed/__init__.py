"""Ranks as a group: how they meet, stall, fail and stop together."""
