"""Read anybody's logs and the files next to them, safely and without judging them: source -> record -> log -> run.

Of the judge, bertbench imports only this package and the functions in `compliance` itself.
"""
