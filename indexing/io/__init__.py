"""Files and servers: reading and writing files, keys of servers, limits of requests, and HTTP."""
