"""Errors that a user can cause. Anything else is a bug and keeps its traceback."""


class UserError(Exception):
    """What was found, where, and what would be right; printed without traceback, exit code 1."""


class MissingPackage(UserError):
    """An optional package is needed; the message says how to install it."""
