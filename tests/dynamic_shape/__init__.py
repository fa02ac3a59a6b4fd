"""Programs that are exported once at their largest shape, and run at many live shapes."""
