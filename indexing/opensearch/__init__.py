"""OpenSearch: the cluster, its index, loading documents, searching and reading them back."""
