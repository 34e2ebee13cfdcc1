"""`abs up`: Redis, server and workers of one machine under a supervisor."""
