"""Where records and findings go while the run goes on."""
