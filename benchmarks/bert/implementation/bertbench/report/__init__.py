"""Show running and finished runs to people, as tables, charts and comparisons in terminals, HTML pages and trackers."""
