"""From a file to a plan. It knows no device, no numpy and no torch."""
