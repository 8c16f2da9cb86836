"""The engine: drives the scheduler, performs and undoes actions, and tells what happens."""
