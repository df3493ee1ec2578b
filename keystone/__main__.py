"""The command line, as `python -m keystone`."""

from keystone.runs.cli.main import main

main()
