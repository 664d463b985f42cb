"""DFModel's protobuf text: reading setups, writing tasks and answers.

Source of the format: ``dfmodel_code``.
"""
