"""`python -m giantdsl` is the same program as `giantdsl`."""

import sys

from giantdsl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
