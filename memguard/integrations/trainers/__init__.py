"""What Trainers do not report to their callbacks, and what their loggers receive."""
