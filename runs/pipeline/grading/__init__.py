"""Grades of a run: their files, and further rounds of search for queries that they leave open."""
