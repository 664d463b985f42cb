# %% [markdown]
# # What bounds it
#
# Llama-3 8B writes one token for each of 16 sequences, with 4,096 tokens before it, on 16 SN40L.
# What would make it faster? Every resource of the machine is made 10 % larger and 10 % smaller,
# and the task is mapped again.

# %%
from pathlib import Path

import crosstack
from crosstack.explore.explain import explain
from crosstack.report.explain_text import explanation_svg, findings

task = crosstack.load("examples/llama3_8b_sn40l.yaml")
explanation = explain(task)
for sentence in findings(explanation):
    print(sentence)

# %% [markdown]
# The elasticity is the change of the time in percent for one percent more of the resource: -1
# means that the time follows it one to one, 0 that it does not matter.

# %%
print(f"{'resource':26}  elasticity of the time")
for effect in explanation.effects:
    print(f"{effect.resource.name:26}  {effect.elasticity:+.3f}")

# %% [markdown]
# The sum over compute, memory and network is about -1, as it has to be: a machine that is faster
# in everything by one percent takes one percent less time (latency counts the other way round).

# %%
Path("what_bounds_it.svg").write_text(explanation_svg(explanation))
