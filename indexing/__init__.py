"""Documents: reading corpora, segments, embeddings, indexes and the document store."""
