"""What a mapping costs, and answers."""
