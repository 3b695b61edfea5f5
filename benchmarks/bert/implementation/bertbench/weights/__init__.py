"""Import and export weights: TensorFlow and Hugging Face checkpoints -> one weights file -> the model.

tensorflow/ and hugging_face read other programs' files, names maps tensor names between them, convert joins the
tensors, and file is our own format. Nothing here imports configuration or logging.
"""
