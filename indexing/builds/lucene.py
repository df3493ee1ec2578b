"""`python -m keystone.indexing.builds.lucene INDEX` makes the Lucene index of an index folder that has none.

An update leaves it out, since no search of Keystone's reads it. Anserini and Pyserini do.
"""

import shutil
import sys
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, open_index
from keystone.indexing.io.writing import lock_folder
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.store import DocumentStore


def add_lucene(index: Index) -> None:
    """Make `lucene` of an index, for each language. `UserError` if others hold the documents, or write the index."""
    if index.at:
        raise UserError(f"{index.folder}: holds its documents in {index.backend}, expected them in the folder")
    with lock_folder(index.folder):
        if not index.languages and not index.lucene.is_dir():
            made = index.folder / ".lucene.partial"
            shutil.rmtree(made, ignore_errors=True)
            build_lucene(DocumentStore(index.store), made, language=index.language)
            made.rename(index.lucene)


if __name__ == "__main__":
    try:
        add_lucene(open_index(Path(*sys.argv[1:])))
    except UserError as error:
        sys.exit(str(error))
