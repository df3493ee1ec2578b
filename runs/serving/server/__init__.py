"""The server process: its port, its guard, its metrics and its errors."""

REPLY_S = 300.0
"""How long a request may wait until its reply begins, unless the user sets another time."""
HEADERS = "keystone.headers"
"""The key of a request's scope for the list of headers that its reply gets besides those of its front."""
WHOLE = "keystone.whole"
"""The key of a request's scope that says that all of its body has arrived."""
