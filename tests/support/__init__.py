"""What tests are built from: programs and waits, corpora, servers and models."""
