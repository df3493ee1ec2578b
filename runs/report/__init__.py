"""Results for people: lines, tables and progress bars on the terminal."""
