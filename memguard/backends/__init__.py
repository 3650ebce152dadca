"""Where the numbers come from: one file per kind of device."""
