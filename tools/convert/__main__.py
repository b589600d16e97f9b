"""`python tools/convert --map NAME CHECKPOINT OUT_DIR`: see docs/your_model.md."""

import sys

from convert import main

sys.exit(main())
