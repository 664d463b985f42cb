"""The runs and rules of CrossFlow and DeepFlow."""
