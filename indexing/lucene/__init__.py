"""Lucene indexes: a Java machine in this process, writing and reading."""
