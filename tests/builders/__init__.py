"""What several files of tests start from: small texts, graphs and lists of parameters."""
