"""Define the command line: a table of the commands, and a file for each subject.

A command is two functions: one adds its arguments, one runs it. At its top a file imports only what costs nothing to
import, and each function imports the code that it calls, so that `--help` and a mistyped option never wait for torch,
which takes seconds to load. Every command takes --json: JSON on standard output, everything else on standard error.

`main` parses and calls, `commands` is the table, `arguments` holds what the subjects share.
"""
