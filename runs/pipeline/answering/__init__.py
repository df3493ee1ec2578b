"""The command `answer`: topics as they come, and the file that their answers are appended to."""
