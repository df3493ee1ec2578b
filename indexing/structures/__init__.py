"""Trees over the text of a document, made without a model: sections by headings, and discourse."""
