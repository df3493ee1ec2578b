"""Options that several commands have."""

import os
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress bars, only errors and results.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads to use.", show_default="all cores")]
CORES = os.cpu_count() or 1
REPORTED_RECORDS = 5
"""The number of skipped records, and of violations of each kind, that are printed one by one."""
