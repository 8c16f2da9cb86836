"""The documents: models, loading with positions, diagnostics, schema and formatting."""
