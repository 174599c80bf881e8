"""What people do with it: predict, explain, demo, doctor."""
