"""The command line: `keystone index`, `run`, `answer` and all other commands.

Commands import large packages only if they need them. Exit codes:

* 0: success
* 1: an error, or an invalid submission
* 2: wrong usage
* 3: the run waits for replies
* 130: an interrupt
"""

import atexit
import errno
import gc
import os
import sys
from functools import cache
from typing import Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.indexing.io.system import INTERRUPTED, interrupts_end_the_process
from keystone.runs.cli.table import Commands
from keystone.runs.report.say import say

RESUMES = "the same command continues from the finished work"
RESTARTS = "the same command begins anew"
LEFT_BY_COMMAND = {
    **dict.fromkeys(("index", "run", "demo", "sweep"), RESUMES),
    **dict.fromkeys(("ask", "judge", "nuggets", "score", "rubrics"), f"the model's replies are kept; {RESUMES}"),
    "answer": f"with --out, {RESUMES}; without it, no answer is kept",
    "serve": "the log has every call that was answered",
    "tune": f"the model's replies are kept, measurements are lost; {RESTARTS}",
}
"""The work that each interrupted command leaves, and the effect of running it again."""


app = typer.Typer(
    help="TREC-style retrieval and answers: a corpus and narratives become valid, evaluated submissions.\n\n"
    "Start with: keystone demo",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

GRACE_S = 1.0
"""After an interrupt, Keystone waits this long for a command to end by itself."""
NEW_OBJECTS = 10_000
"""After this many new objects, Python looks for garbage. Its default of 700 takes a tenth of the time of imports."""
IDLE_SPINS = "20"
"""Once the threads of OpenBLAS start, they wait busily for 2^20 cycles, not 2^26. Often nothing ever uses them."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a disk that is full or read-only."""


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"keystone {version('keystone-rag')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


@cache
def report_interrupt() -> None:
    """Report once the work that the interrupted command leaves."""
    command = next(iter(sys.argv[1:]), "")
    say(f"interrupted: {LEFT_BY_COMMAND.get(command, f'nothing was written; {RESTARTS}')}", err=True)


def _start_lightly() -> None:
    """Spare the process work of no use: a third of the processor time of a short command."""
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)  # so that the process looks for no garbage as it ends
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for them reads the files of all packages
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", IDLE_SPINS)  # before numpy is imported


def main() -> None:
    """Run the command line. If the user caused an error, print one message without a traceback."""
    _start_lightly()
    try:
        with interrupts_end_the_process(GRACE_S, report_interrupt):
            app()
    except UserError as error:
        say(f"{error}" if error.waits else f"error: {error}", err=True)
        sys.exit(3 if error.waits else 1)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        where = error.filename or "standard output, or the folder of temporary files"
        say(f"error: {where}: cannot be written: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the disk would refuse the remaining output again at the end
        sys.exit(1)
    except SystemExit as error:
        if error.code == INTERRUPTED:
            report_interrupt()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)  # at once, without waiting for threads that still compute
        raise


if __name__ == "__main__":
    main()
