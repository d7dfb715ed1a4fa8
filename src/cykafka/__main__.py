"""``python -m cykafka``."""

import sys

from cykafka.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
