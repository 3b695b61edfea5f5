"""`python -m bertbench`."""

import sys

from bertbench.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
