"""What each step says to a model: constants in our own words, with the JSON schemas of the replies."""
