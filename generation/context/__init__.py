"""The part of a topic's documents that a language model is shown."""
