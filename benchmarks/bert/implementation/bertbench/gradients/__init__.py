"""Reduce gradients: from a backward pass to the sum over the ranks.

buckets lays gradients out, reducer watches them fill, clip limits them, and a gradient_sum adds them up over the ranks
through an exchange: every element, half of its bytes, compressed with error_feedback or powersgd, or delayed. With
slices, each rank keeps a part of the sum.
"""
