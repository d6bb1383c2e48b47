"""A page on which one draws a digit and watches a capsule network parse it, and its server."""
