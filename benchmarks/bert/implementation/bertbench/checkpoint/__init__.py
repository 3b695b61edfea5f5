"""Save and restore a run, and read and write weights.

A snapshot (snapshot_folder, snapshots, state_files) is all that a run needs to resume exactly: docs/reliability.md.
Weights are a model alone: weights_file is our own format, tensorflow/ and hugging_face read other programs' files,
tensor_names maps names between them, and conversion joins the tensors.
"""
