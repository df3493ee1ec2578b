"""One module a markup: the headings and the content of a source, as blocks."""
