"""`python -m cusz_core` is the command `cusz`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
