# %% [markdown]
# # Serving
#
# Llama-3 70B on SN40L chips: how many chips, how many sequences at once? A point is priced in
# closed form, so all of them are priced together.

# %%
from pathlib import Path

import numpy as np

import crosstack
from crosstack.charts import LineChart, Measure, Series
from crosstack.evaluate.serving_sweep import serving_sweep
from crosstack.io import library
from crosstack.report.chart_figure import chart_svg

system = crosstack.load("examples/llama3_8b_sn40l.yaml").system
model = library.model("llama3-70b")
TENSOR, BATCH, CONTEXT = [2, 4, 8, 16], [1, 4, 16, 64, 256], 4096
tensor, batch = (axis.ravel() for axis in np.meshgrid(TENSOR, BATCH, indexing="ij"))
sweep = serving_sweep(model, system, tensor=tensor, pipeline=1, batch=batch, context=CONTEXT)

print("chips  batch  token ms  tokens/s  tokens/s/chip  bound by  fits")
for i in range(len(sweep.tensor)):
    per_chip = sweep.throughput[i] / sweep.tensor[i]
    print(
        f"{sweep.tensor[i]:5}  {sweep.batch[i]:5}  {1e3 * sweep.latency[i]:8.2f}"
        f"  {sweep.throughput[i]:8.0f}  {per_chip:13.1f}"
        f"  {sweep.bound_by[i]:8}  {'yes' if sweep.fits[i] else sweep.limit[i]}"
    )

# %% [markdown]
# More sequences give more tokens per second and a longer wait for each. Points that do not fit
# are left out of the picture.

# %%
series = []
for colour, chips in enumerate(TENSOR):
    chosen = (sweep.tensor == chips) & sweep.fits
    if not chosen.any():
        continue
    x, y = sweep.latency[chosen], sweep.throughput[chosen] / chips
    name = f"{chips} chips"
    series.append(Series(name=name, x=tuple(x.tolist()), y=tuple(y.tolist()), colour=colour))
chart = LineChart(
    title="Llama-3 70B, 4,096 tokens kept",
    x=Measure(label="time between two tokens", unit="ms", worth=1e-3, log=True),
    y=Measure(label="throughput of a chip", unit="1/s", log=True),
    series=tuple(series),
)
Path("serving.svg").write_text(chart_svg(chart))

# %% [markdown]
# ## A draft model
#
# A small model guesses the next tokens and the large one checks them all at once. It pays while
# the guesses are good.

# %%
draft, target = library.model("llama-68m"), library.model("llama3-8b")
print("window  acceptance  tokens a step  speed-up")
for window in (2, 4, 8):
    for acceptance in (0.6, 0.8):
        found = crosstack.speculate(
            draft, target, system, context=CONTEXT, window=window, acceptance=acceptance
        )
        print(f"{window:6}  {acceptance:10}  {found.tokens:13.2f}  {found.speedup:8.2f}")
