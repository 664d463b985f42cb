"""The only place that imports a solver."""
