"""The workings of tau-bench: databases, tools, the official files, a generated shop."""
