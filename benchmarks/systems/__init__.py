"""Systems that answer under a constraint, ours and the others, each in a process of its own."""
