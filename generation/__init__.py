"""Every step that asks a language model, from narratives to cited answers, and the same steps by rules."""
