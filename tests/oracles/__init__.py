"""What the engine is checked against: other formulations of the same problems."""
