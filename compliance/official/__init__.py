"""Run MLCommons' own programs in this process: the log checker, and the tools for packages."""
