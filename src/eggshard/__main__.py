"""``python -m eggshard``: the command line."""

from eggshard.cli import main

main()
