"""Where the numbers come from: one module for each kind of device."""
