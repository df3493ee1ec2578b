"""Corpora: a module for each format, the table of formats, and the segments of documents.

In the module of a format, `read(file, name, report)` yields the documents of one file. `name` is the file's name within
the corpus, URL-quoted and without the ending of a compression. The reader reports each record that is not a document
and, if `report` returns, skips it.
"""
