"""The opening of the report: the result in a sentence and a picture, and one answer with its sources."""
