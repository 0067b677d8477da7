//! Inside the crate, so that the tables of refusals can match [`ManifestError`] without a wildcard.

mod documents;
mod mutations;
mod refusals;
mod round_trip;
mod seed;
