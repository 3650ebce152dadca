"""Where records and findings go during the run."""
