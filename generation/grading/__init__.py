"""Grades of documents by a language model, and the documents that the grades select."""
