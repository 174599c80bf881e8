"""`python -m ipseg` is the `ipseg` command, also where the package is not installed."""

from ipseg.cli import main

if __name__ == "__main__":
    main()
