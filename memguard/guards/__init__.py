"""What acts, and reports each act as a finding."""
