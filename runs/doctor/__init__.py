"""Checks of the machine and of servers."""
