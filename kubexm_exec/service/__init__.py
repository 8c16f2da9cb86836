"""What can be done with specs and runs, for every front: requests as plain data in, results or typed errors out.

Nothing here knows a command line, a terminal, a working directory or a signal, and nothing is shared by two calls but
the journal: any number of runs may go on in one process.
"""
