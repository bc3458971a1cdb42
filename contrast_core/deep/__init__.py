"""What torch's networks fit: the only place that imports torch.nn."""
