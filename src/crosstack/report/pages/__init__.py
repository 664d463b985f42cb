"""Pages of studies: a table of points as one self-contained file, or served while a sweep runs."""
