"""The reader Disco-RAG: rhetorical trees within chunks, a graph between them, and a plan for the answer."""
