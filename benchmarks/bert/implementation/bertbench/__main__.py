"""`python -m bertbench`."""

import sys

from bertbench.cli import main
from bertbench.distributed.orphans import die_with_launcher

if __name__ == "__main__":
    die_with_launcher()  # before torch is imported, which takes seconds
    sys.exit(main())
