"""``python -m cykafka``."""

import sys

from cykafka.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
