"""What several step types share."""
