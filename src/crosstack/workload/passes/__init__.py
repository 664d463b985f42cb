"""Passes: from a graph of operations to another one."""
