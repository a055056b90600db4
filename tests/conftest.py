"""Settings for the whole suite, made before any test imports torch."""

import os

# As the command line does: threads that wait sleep, so a busy machine does not stall the tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
