"""Programs with one planted fault each, and healthy ones that look alike."""
