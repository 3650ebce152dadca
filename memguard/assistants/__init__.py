"""What assistants may ask about runs, snapshots and forecasts: functions that read one directory and nothing else."""
