"""The doctor: checks of this machine, and of an OpenSearch cluster."""
