"""The simulators over the MayflyMQ that this Python has installed: `python -P simulation/with_installed.py soak`.

`python -m simulation` from the root of the tree runs the source tree, slower where the installed one is compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Behind whatever MayflyMQ is installed: this brings in nothing but the simulators then. Processes that are spawned have
# it from their parent.
sys.path.append(str(Path(__file__).resolve().parent.parent))

if __name__ == "__main__":
    from simulation.__main__ import main

    sys.exit(main(sys.argv[1:]))
