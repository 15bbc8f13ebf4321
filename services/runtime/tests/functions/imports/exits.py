"""Leaves while it is imported."""

import sys

print("a last word")
sys.exit(1)
