"""`python -m benchmarks.peak ARGUMENTS...` runs the command line and prints its peak memory in bytes."""

import resource
import sys
from pathlib import Path


def read_peak_memory() -> int:
    """The peak memory of this process in bytes. On Linux, `getrusage` would count its parent's memory at the fork."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Run `keystone` with the arguments of this process."""
    from keystone.runs.cli import main as cli

    try:
        cli.main()
    finally:
        print(read_peak_memory(), file=sys.stderr)


if __name__ == "__main__":
    main()
