# %% [markdown]
# # First mapping
#
# GPT-3 with a trillion parameters is trained on 1,024 SN30 chips in an 8 x 128 torus. The file
# names the workload and the machine; what it leaves open is searched. Run this from the
# repository: `python3 examples/scripts/first_mapping.py`.

# %%
from pathlib import Path

import crosstack
from crosstack.report.svg import answer_svg

task = crosstack.load("examples/gpt3_1t_sn30.yaml")
answer = crosstack.optimise(task)
evaluation, certificate = answer.evaluation, answer.certificate

print(f"one iteration   {evaluation.time:.2f} s")
print(f"utilization     {100 * evaluation.utilization:.1f} % of the peak")
print(f"status          {certificate.status}")
print(f"lower bound     {certificate.bound:.2f} s")

# %% [markdown]
# The bound meets the time, so no mapping is faster under these rules. Kernels of one partition
# run together on the chip; what bounds a partition is the largest of its three times.

# %%
print("partition  kernels  compute ms  memory ms  network ms  bound by")
for p in evaluation.partitions:
    times = (
        f"{1e3 * p.compute_time:10.3f}  {1e3 * p.memory_time:9.3f}  {1e3 * p.network_time:10.3f}"
    )
    print(f"{p.number:9}  {len(p.kernels):7}  {times}  {p.bound_by}")

# %% [markdown]
# Any of these numbers can be asked where it comes from.

# %%
for term in ("time", "network"):
    print(answer.explain(0, term))

# %% [markdown]
# The same as a picture: the graph with its partitions, and what bounds each.

# %%
Path("first_mapping.svg").write_text(answer_svg(answer))
