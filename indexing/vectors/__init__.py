"""Embeddings: how models make them, files that hold them, and FAISS indexes over them."""
