"""``python -m crosstack``."""

from crosstack.cli.main import main

main()
