# %% [markdown]
# # From technology to a training step
#
# A logic node, a memory, 800 mm2 and 500 W become a chip; 512 of those train GPT-3 175B. The chip
# file says who gets which share of area, power and edge.

# %%
from pathlib import Path

import crosstack
from crosstack.io.chip_file import read_chip
from crosstack.io.steps import step_named
from crosstack.machine.generate.generated import generate
from crosstack.machine.packages import system_of_packages
from crosstack.report.timeline_figure import gantt_svg

FILE = Path("examples/chips/n5_hbm3.yaml")


def described(*changes):
    """Return what the chip file says, with some of it changed."""
    return read_chip(FILE.read_text(), FILE.name, changes)


description = described("packages=512")
made = generate(description.template, description.budget)
chip = made.chip
print(f"peak   {chip.compute.peak_throughput / 1e12:10.1f} TFLOP/s")
print(f"clock  {chip.compute.frequency / 1e9:10.2f} GHz")
for level in chip.levels:
    print(
        f"{level.name:12}  {level.bandwidth / 1e9:10.1f} GB/s  {level.capacity / 2**20:12.3f} MiB"
    )

# %% [markdown]
# ## A step
#
# RC-1-8-d8-p8: tensors split over 8 chips, 8 replicas, 8 pipeline stages; 8 microbatches. How each
# kernel is split, what is fused and what is computed again is decided.

# %%
STRATEGY = "RC-1-8-d8-p8"
model = step_named("gpt3-175b", {"microbatches": 8})


def step(description):
    """Return one training step on the machine of a description."""
    chip = generate(description.template, description.budget).chip
    system = system_of_packages(
        chip,
        chips_per_package=description.chips_per_package,
        n_packages=description.n_packages,
        inside=description.inside,
        between=description.between,
    )
    return crosstack.predict(model, system, STRATEGY)


found = step(description)
print(f"one step    {found.time:.2f} s")
print(f"one chip    {found.memory.peak / 1e9:.1f} GB of {chip.main_memory.capacity / 1e9:.1f} GB")
for stage, busy in found.busy[:2]:
    print(f"{stage:10}  computes {busy:.2f} s")

# %% [markdown]
# ## What a node brings
#
# The same area and power in other nodes. Memory and links stay as they are.

# %%
print("node  peak TFLOP/s  step s")
for node in ("N12", "N7", "N5", "N3", "N2"):
    changed = described("packages=512", f"node={node}")
    peak = generate(changed.template, changed.budget).chip.compute.peak_throughput
    print(f"{node:4}  {peak / 1e12:12.1f}  {step(changed).time:6.2f}")

# %% [markdown]
# When everything ran: eight stages, eight microbatches.

# %%
Path("technology_to_step.svg").write_text(gantt_svg(found.timelines(), "GPT-3 175B, RC-1-8-d8-p8"))
