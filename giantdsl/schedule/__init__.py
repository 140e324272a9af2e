"""Pipeline schedules as data: made, checked, simulated and drawn without a process or a tensor."""
