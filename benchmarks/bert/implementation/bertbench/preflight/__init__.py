"""An allocation before a run: what each of its nodes says, and what is wrong with which."""
