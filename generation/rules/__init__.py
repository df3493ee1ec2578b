"""`rules`: the same steps without a language model, never presented as a model's work."""
