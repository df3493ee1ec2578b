"""The command line: its commands, their options, and the checks that come before any of them."""
