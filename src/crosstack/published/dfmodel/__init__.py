"""The runs and rules of DFModel."""
