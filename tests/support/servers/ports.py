"""Ports for servers that tests start."""

import socket
from random import SystemRandom

PORTS = range(15_000, 30_000)
"""The system gives none of them to a connection that a client opens."""

_held: list[socket.socket] = []


def free_port() -> int:
    """A port on which no program listens. No other test gets it, in this process or in another one."""
    for port in SystemRandom().sample(PORTS, 1_000):
        mark = socket.socket(type=socket.SOCK_DGRAM)  # of the same number, to be seen by other tests alone
        try:
            mark.bind(("127.0.0.1", port))
            with socket.socket() as found:
                found.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
        else:
            _held.append(mark)
            return port
    raise AssertionError("found no free port")
