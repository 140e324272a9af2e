"""What emitted plain files carry along: the emitter copies its text, stage files import it."""
