"""Systems that answer under a constraint: ours and others.

Each system runs in a process with an environment of its own, so that no system is a dependency of this project.
`catalogue.SYSTEMS` lists them by name. `process` starts a system and sends it questions, and `child` is the program
in that process. `base` is the protocol that a system implements.
"""
