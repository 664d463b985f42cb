"""Technology: what silicon, memory and wires can do, before any chip is drawn."""
