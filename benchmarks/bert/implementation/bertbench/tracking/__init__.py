"""A run as others see it while it goes on: read from its files, never from its ranks' loop."""
