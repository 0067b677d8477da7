//! Can this model run here? Asked before any weight byte.

use monarch_runtime::{AdapterFacts, DeviceError, DeviceOptions, Gpu, needs};
use monarch_weights::{Cancel, Source};
use serde::Serialize;

use crate::error::EngineError;
use crate::model::fetch_manifest;

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SupportStatus {
    /// It will run.
    Supported,
    /// It cannot run here.
    Unsupported,
}

/// The verdict and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Support {
    /// The verdict.
    pub status: SupportStatus,
    /// What is missing; empty when it will run.
    pub reasons: Vec<String>,
    /// The adapter, if there is one.
    pub adapter: Option<AdapterFacts>,
}

/// Compares what the model needs with what the adapter has. Reads the manifest and nothing else.
pub async fn support<S: Source>(
    source: &S,
    manifest_url: &str,
    device: &DeviceOptions,
    cancel: &Cancel,
) -> Result<Support, EngineError> {
    let manifest = fetch_manifest(source, manifest_url, cancel).await?;
    let facts = match Gpu::inspect(device).await {
        Ok(facts) => facts,
        Err(error @ (DeviceError::NoWebGpu | DeviceError::NoAdapter { .. })) => {
            return Ok(Support {
                status: SupportStatus::Unsupported,
                reasons: vec![error.to_string()],
                adapter: None,
            });
        }
        Err(error) => return Err(error.into()),
    };
    let needs = needs(&manifest.spec, manifest.spec.context_tokens);
    let reasons: Vec<String> = needs
        .unmet(&facts.limits)
        .into_iter()
        .map(|error| error.to_string())
        .collect();
    let status = if reasons.is_empty() {
        SupportStatus::Supported
    } else {
        SupportStatus::Unsupported
    };
    Ok(Support {
        status,
        reasons,
        adapter: Some(facts),
    })
}
