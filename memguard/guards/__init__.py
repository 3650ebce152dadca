"""What acts, and reports each action as a finding."""
