"""Read anybody's logs and the files beside them, safely and without judging: source -> record -> log -> run.

The only package of the judge that bertbench imports, besides the functions of `compliance` itself.
"""
