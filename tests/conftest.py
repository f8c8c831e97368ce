"""Settings that hold for every test; pytest loads this before any test module can import jax."""

import os

from hypothesis import settings

XLA_FLAGS = {
    "--xla_force_host_platform_device_count": "8",
    # A collective that some device never reaches ends the process instead of hanging the run.
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds": "20",
    "--xla_cpu_collective_call_terminate_timeout_seconds": "60",
}

given_flags = os.environ.get("XLA_FLAGS", "").split()
given_names = {flag.partition("=")[0] for flag in given_flags}
missing_flags = [f"{name}={value}" for name, value in XLA_FLAGS.items() if name not in given_names]
os.environ["XLA_FLAGS"] = " ".join(given_flags + missing_flags)
os.environ["JAX_PLATFORMS"] = "cpu"

# In CI the same examples every time; elsewhere new ones on every run.
settings.register_profile("eggshard", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("eggshard")

# Programs are evaluated as a check of plans: their manual computations mean what simulated devices do.
import eggshard.simulate  # noqa: E402, F401
