"""`python -m peakmem`."""

import sys

from peakmem.cli import main

if __name__ == "__main__":
    sys.exit(main())
