"""Documents: a pipeline with all that it uses, loaded and checked against the models."""
