"""Follow a run while it trains, from its files only, never from its ranks' loop."""
