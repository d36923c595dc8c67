"""What those who show a node to operators may ask of it: protocols, and what goes in and out of them."""
