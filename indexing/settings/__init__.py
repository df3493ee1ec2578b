"""Types of settings files: strict sections, and `none` as a word for None."""
