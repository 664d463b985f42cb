"""Published figures, and the runner that checks them."""
