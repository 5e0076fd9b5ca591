"""What a process takes in: how much it holds, and whether it keeps up."""
