"""What runs the learning: experiment, step, batch; optimizer, precision, devices, checkpoints."""
