"""`abs up`: the service as four processes of one machine, with a server of their own."""
