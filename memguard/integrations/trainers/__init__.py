"""What Trainers do not tell their callbacks, and what their loggers are given."""
