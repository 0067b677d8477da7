//! A packed folder on the GPU, without tokenizer or loader: what model tests look at.

use std::path::Path;

use monarch_manifest::{Dequantise, F16Products, Manifest};
use monarch_runtime::{Choice, DeviceOptions, Gpu, Loading, PlanChoice, Runtime, needs};

/// Which plan on which device.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The plan.
    pub plan: PlanChoice,
    /// The device.
    pub device: DeviceOptions,
    /// Products in f16 where kernels have them, whatever the manifest's tuning says.
    pub f16_products: bool,
    /// KV rows; what the manifest says when absent.
    pub context_tokens: Option<u32>,
}

impl Setup {
    /// A plan with or without what kernels have variants for.
    pub fn new(plan: PlanChoice, f16_products: bool, subgroups: bool) -> Self {
        let device = DeviceOptions {
            allow_subgroups: subgroups,
            ..DeviceOptions::default()
        };
        Self {
            plan,
            device,
            f16_products,
            context_tokens: None,
        }
    }

    /// What a failure message calls it.
    pub fn name(&self) -> String {
        let on = |allowed, name| if allowed { name } else { "" };
        let features = [
            on(self.f16_products, " f16"),
            on(self.device.allow_subgroups, " subgroups"),
        ]
        .concat();
        format!("{:?}{features}", self.plan)
    }
}

/// Opens the device that `MONARCH_ADAPTER` names and loads a packed folder.
///
/// # Panics
///
/// When the adapter is another one, or the model does not load.
pub fn load(folder: &Path, setup: &Setup) -> Runtime {
    try_load(folder, setup).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// As [`load`], with the runtime's own error.
pub fn try_load(folder: &Path, setup: &Setup) -> Result<Runtime, monarch_runtime::RuntimeError> {
    let text = std::fs::read_to_string(folder.join("manifest.json")).expect("a manifest");
    let mut manifest = monarch_manifest::parse(&text).expect("a valid manifest");
    if setup.f16_products {
        manifest.tuning.fallback_dequantise = Dequantise::PerWord;
        manifest.tuning.mlp_product_f16 = F16Products::Both;
    }
    let weights = std::fs::read(folder.join("weights.bin")).expect("weights");
    let context_tokens = setup.context_tokens.unwrap_or(manifest.spec.context_tokens);
    pollster::block_on(async {
        let gpu = Gpu::request(&setup.device, &needs(&manifest.spec, context_tokens)).await?;
        check_adapter(&gpu);
        upload(gpu, &manifest, &weights, setup.plan, context_tokens).await
    })
}

async fn upload(
    gpu: Gpu,
    manifest: &Manifest,
    weights: &[u8],
    plan: PlanChoice,
    context_tokens: u32,
) -> Result<Runtime, monarch_runtime::RuntimeError> {
    let (spec, tuning) = (&manifest.spec, &manifest.tuning);
    let mut loading = Loading::new(gpu, spec, tuning, plan, context_tokens, &mut |_, _| {}).await?;
    let names: Vec<String> = loading.wanted().map(str::to_owned).collect();
    for name in names {
        let section = spec
            .section(&name)
            .expect("a plan reads sections of its manifest");
        let bytes = &weights[section.offset_bytes as usize..section.end_bytes() as usize];
        // Pieces that are no multiple of a word, as a network gives them.
        for piece in bytes.chunks(65_521) {
            loading.push(&name, piece)?;
        }
        loading.complete(&name)?;
    }
    loading.finish()
}

/// Whether the adapter under test has a WebGPU feature.
pub fn adapter_has(feature: &str) -> bool {
    let facts = pollster::block_on(Gpu::inspect(&DeviceOptions::default())).expect("an adapter");
    facts.features.iter().any(|name| name == feature)
}

/// Refuses to test on another adapter than the one asked for.
fn check_adapter(gpu: &Gpu) {
    let wanted = std::env::var("MONARCH_ADAPTER")
        .expect("MONARCH_ADAPTER names the adapter to test: run `cargo xtask test`, which sets it and the driver");
    let facts = gpu.facts();
    let words = format!("{} {}", facts.device, facts.description).to_lowercase();
    let known_as = match wanted.as_str() {
        "lavapipe" => "llvmpipe",
        other => other,
    };
    assert!(
        words.contains(known_as),
        "MONARCH_ADAPTER is {wanted}, the adapter is {words}"
    );
}

/// Logits after every token, f32 `[T, V]`, one pass a token.
pub fn logits(runtime: &mut Runtime, ids: &[u32]) -> Vec<f32> {
    pollster::block_on(async {
        runtime
            .start(ids, &Choice::default())
            .expect("a prompt of this vocabulary");
        let mut logits = Vec::with_capacity(ids.len() * runtime.vocab() as usize);
        for _ in ids {
            let pending = runtime.submit_choose(1);
            runtime.read(pending).await.expect("a pass");
            logits.extend(runtime.logits().await.expect("logits"));
        }
        logits
    })
}

/// `steps` chosen tokens after `ids`, in groups of `group` passes, two groups in flight.
pub fn generate(
    runtime: &mut Runtime,
    ids: &[u32],
    choice: &Choice,
    steps: u32,
    group: u32,
) -> Vec<u32> {
    pollster::block_on(async {
        runtime
            .start(ids, choice)
            .expect("a prompt of this vocabulary");
        runtime.submit_feed(ids.len() as u32 - 1);
        let mut pending = std::collections::VecDeque::new();
        let mut chosen = Vec::new();
        let mut submitted = 0;
        while chosen.len() < steps as usize {
            while pending.len() < 2 && submitted < steps {
                let passes = group.min(steps - submitted);
                pending.push_back(runtime.submit_choose(passes));
                submitted += passes;
            }
            let oldest = pending.pop_front().expect("a group in flight");
            chosen.extend(runtime.read(oldest).await.expect("a group"));
        }
        chosen
    })
}
