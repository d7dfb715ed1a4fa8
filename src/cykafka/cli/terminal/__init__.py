"""What a terminal shows, and how a command ends."""
