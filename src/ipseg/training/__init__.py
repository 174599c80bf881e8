"""The training loop: experiment, step, iteration; optimizer, precision, devices, checkpoints."""
