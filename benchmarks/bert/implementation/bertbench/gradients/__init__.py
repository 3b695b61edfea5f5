"""Reduce gradients: from a backward pass to the sum over the ranks.

`buckets` defines the layout of gradients, `reducer` waits until buckets are full, `clip` limits them, and a
`gradient_sum` adds them up over the ranks through an `exchange`: in full, or in half of the bytes. With `slices`, each
rank keeps a part of the sum.
"""
