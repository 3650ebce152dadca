"""What must look at live objects: graphs, storages, grad mode, holders, owners. Cheap, and holds nothing."""
