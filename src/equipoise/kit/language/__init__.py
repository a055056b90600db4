"""Workings that text subjects, tasks and treatments share; import the module you need."""
