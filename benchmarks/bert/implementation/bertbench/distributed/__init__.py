"""Let ranks meet, and stall, fail and stop together."""
