"""DFModel's protobuf text: reading setups, writing tasks and answers.

Source of the format: ``dfmodel_code``.
"""

from crosstack.io.dfmodel.read import looks_like, read_task
from crosstack.io.dfmodel.write import write_answer, write_task

__all__ = ["looks_like", "read_task", "write_answer", "write_task"]
