"""One build of an index, on this machine or on Ray."""
