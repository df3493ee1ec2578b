"""`python -m benchmarks.peak ARGUMENTS...` runs the command line and prints the most memory that it used, in bytes."""

import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """The most bytes that this process held; the count of `getrusage` begins with its parent's at the fork."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Run `keystone` with the arguments of this process."""
    from runs.cli import main as cli

    try:
        cli.main()
    finally:
        print(peak_memory(), file=sys.stderr)


if __name__ == "__main__":
    main()
