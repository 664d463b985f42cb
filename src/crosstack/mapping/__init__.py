"""The decision problems, one file each, and the search over all of them."""
