"""Show runs to people: tables, pages, charts and comparisons, live or finished, in the terminal, HTML and trackers."""
