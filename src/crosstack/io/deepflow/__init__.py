"""DeepFlow's YAML: hardware and model files of 2025, and the single files of 2020 and 2021.

Source of the format: ``deepflow_code``.
"""

from crosstack.io.deepflow.hardware import DeepflowHardware
from crosstack.io.deepflow.read import looks_like, read_hardware, read_model
from crosstack.io.deepflow.steps import check_devices

__all__ = ["DeepflowHardware", "check_devices", "looks_like", "read_hardware", "read_model"]
