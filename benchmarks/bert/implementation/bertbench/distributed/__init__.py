"""Let ranks meet, notice each other's stalls and failures, and stop together."""
