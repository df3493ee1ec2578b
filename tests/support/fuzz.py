"""How much the tests of damaged input and of killed programs try: `make nightly` tries more than `make test`."""

import os

FUZZ_CASES = int(os.environ.get("KEYSTONE_FUZZ", "0"))
"""The number of damaged files or replies of each kind that the environment asks for; 0 if it asks for none."""
