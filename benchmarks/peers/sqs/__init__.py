"""A client of SQS's API that is the same for every server, and does as little as a client can."""
