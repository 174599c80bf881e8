"""`python -m ipseg` is the `ipseg` command, also where the package is not installed."""

import sys
from pathlib import Path

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [str(Path.cwd())]:
        del sys.path[0]  # as the command: a typer.py in the working directory is not imported

    from ipseg.cli import main

    main()
