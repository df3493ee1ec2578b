"""BM25 and dense search by OpenSearch."""
