"""What must look at live objects: graphs, storages, gradient mode, holders, owners. Costs microseconds, holds nothing."""
