"""Files of discourse trees: `.rs3` and `.rs4` (rstWeb), `.dis` (RST Discourse Treebank), JSON."""
