"""What emitted files carry along. Read as text by the emitter, imported by tests only."""
