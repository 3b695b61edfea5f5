"""Weights in and out: TensorFlow and Hugging Face checkpoints -> one weights file -> the model.

tensorbundle (sstable, snappy, protobuf) and hugging_face read other programs' files, layout knows how the same tensor
is called in each, convert joins them, weights is our own file. Nothing here imports configuration or logging.
"""
