"""Files and servers: reading and writing whole files, keys, limits, and HTTP requests."""
