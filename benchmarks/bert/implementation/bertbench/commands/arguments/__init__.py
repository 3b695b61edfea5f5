"""Define arguments of commands whose code imports torch, so that a mistyped option fails before torch loads."""
