"""`python -m relabel`: the command `relabel`."""

from relabel_cli.main import main

main()
