"""The problem of Section 1: graphs, embedding tables, contexts, and their files."""
