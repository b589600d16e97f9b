"""Runs `python tools/convert --map NAME CHECKPOINT OUT_DIR`. See docs/your_model.md."""

import sys

from convert import main

sys.exit(main())
