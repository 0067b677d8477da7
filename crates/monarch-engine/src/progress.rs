//! How far a load is.

use serde::Serialize;

/// One step of a load. Sentences are the page's job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "phase",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Progress {
    /// Pipelines compiled.
    Compile {
        /// So many are ready.
        done: u32,
        /// Of so many.
        total: u32,
    },
    /// Weight bytes on the GPU; totals come from the manifest.
    Fetch {
        /// So many bytes.
        loaded_bytes: u64,
        /// Of so many.
        total_bytes: u64,
    },
    /// The model can be used.
    Ready,
}
