"""`python tied.py PIPE COMMAND...` becomes a command that ends with whoever holds the other end of a pipe.

A process that belongs to nobody reads the pipe. When the other end is closed, or its holder has died, the process
kills the group of the command, and with it the command's own processes. It holds no other file, and it starts before
the command does.
"""

import os
import signal
import sys


def _watch(pipe: int, group: int) -> None:
    os.setsid()
    if os.fork():
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    while os.read(pipe, 1):
        pass
    os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    pipe, *command = sys.argv[1:]
    if not (between := os.fork()):
        try:
            _watch(int(pipe), os.getppid())
        finally:
            os._exit(0)
    os.waitpid(between, 0)
    os.close(int(pipe))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and the command would inherit that
    os.execvp(command[0], command)
