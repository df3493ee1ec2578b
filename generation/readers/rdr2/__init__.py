"""The reader RDR2 (Retrieve-DocumentRoute-Read): a router reads the section tree of each document."""
