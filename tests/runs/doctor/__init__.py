"""Tests of `runs/doctor/`."""
