"""Ranks as a group: who is here, how they meet, stall, fail and stop together."""
