"""Many points: studies, their sweeps, and the store of what came out."""
