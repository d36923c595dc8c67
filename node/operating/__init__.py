"""What operators see and do. `ports` says what may be asked; here is what answers it, over the engine."""
