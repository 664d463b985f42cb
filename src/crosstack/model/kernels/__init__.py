"""How long kernels take on a chip."""
