"""Servers that tests start: real ones, and ones that misbehave by script."""
