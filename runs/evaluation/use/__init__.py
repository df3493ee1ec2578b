"""What use answers are to whoever asked: the files of judgments, and the measures of these."""
