"""File formats that steps read and write."""
