"""One module a corpus format: `read(file, name, report)` gives the documents of one file, one at a time.

`name` is the file's name within the corpus, URL-quoted and without the ending of a compression. A record that
is no document goes to `report` and, where that returns, is left out.
"""
