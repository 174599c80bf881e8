"""What runs the learning: experiment, step, batch; optimiser, precision, devices, checkpoints."""
