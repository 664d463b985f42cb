# %% [markdown]
# # Parallelism compared
#
# A transformer of 22 billion parameters is trained on 64 chips of `examples/chips/n5_hbm3.yaml`.
# Every way to share 64 chips out over tensors, replicas and stages is timed, with all that such a
# strategy leaves out decided; one that does not fit says why.

# %%
from collections import Counter
from pathlib import Path

import crosstack
from crosstack.charts import BarChart, Bars, Measure
from crosstack.errors import CrosstackError
from crosstack.io.chip_file import read_chip
from crosstack.io.steps import step_named
from crosstack.machine.generate.generated import generate
from crosstack.machine.packages import system_of_packages
from crosstack.mapping.strategy import strategies
from crosstack.report.chart_figure import chart_svg

N_CHIPS = 64
file = Path("examples/chips/n5_hbm3.yaml")
description = read_chip(file.read_text(), file.name, [f"packages={N_CHIPS}"])
chip = generate(description.template, description.budget).chip
model = step_named("gpt-22b", {"batch": 64})

system = system_of_packages(chip, n_packages=N_CHIPS, between=description.between)
found, refused = [], Counter()
for strategy in strategies(N_CHIPS, max_lp=model.model.layers):
    if strategy.kp1 > 1:
        continue  # rows of a product are as replicas, and sums are an axis to split as any other
    try:
        found.append(crosstack.predict(model, system, strategy))
    except CrosstackError as error:
        refused[type(error).__name__] += 1
found.sort(key=lambda prediction: prediction.time)
print(f"{len(found)} strategies run")
for kind, count in refused.items():
    print(f"{count} refused: {kind}")

# %% [markdown]
# ## The fastest and the slowest
#
# `RC-1-2-d8-p4`: tensors over 2 chips, 8 replicas, 4 stages.

# %%
print("strategy            step s  memory GB")
for prediction in [*found[:6], *found[-3:]]:
    memory = prediction.memory.peak / 1e9
    print(f"{prediction.strategy!s:18}  {prediction.time:6.3f}  {memory:9.1f}")

# %%
shown = found[:5]
chart = BarChart(
    title="The five fastest of 64 chips",
    y=Measure(label="time of a step", unit="s"),
    groups=tuple(str(prediction.strategy) for prediction in shown),
    bars=(Bars(name="time", values=tuple(prediction.time for prediction in shown)),),
)
Path("compare_parallelism.svg").write_text(chart_svg(chart))
