"""``python -m plml`` is the command line."""

import sys

from plml.cli import main

sys.exit(main())
