"""Check an allocation before a run: collect each node's state, and name the nodes with problems."""
