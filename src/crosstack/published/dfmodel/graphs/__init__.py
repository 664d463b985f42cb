"""Graphs as DFModel's generators write them down, kernel by kernel, with backward passes by hand.

Published cases are about these graphs; files name them as ``workload: {dfmodel: {llm: ...}}``.
"""
