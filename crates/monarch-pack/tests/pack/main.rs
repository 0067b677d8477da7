//! Checkpoints in, packed folders out and back, against the golden data of `tests/golden`.

mod checkpoint;
mod golden;
mod round_trip;
mod support;
mod verify;
