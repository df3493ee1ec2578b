"""Diagnosis of a run: the stage at which it lost each nugget or relevant document, and the worth of each loss."""
