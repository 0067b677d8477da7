//! From a manifest's URL to a model on the GPU.

use monarch_manifest::{Manifest, ModelSpec, SelfTest};
use monarch_runtime::{AdapterFacts, Choice, Gpu, Loading, Runtime, RuntimeError, needs};
use monarch_text::{Text, TextFile, TextFiles};
use monarch_weights::{Cancel, Loaded, SectionSink, Source, WeightsError, load_sections};
use serde::Serialize;

use crate::error::EngineError;
use crate::generate::Generation;
use crate::options::{GenerateOptions, LoadOptions, Prompt};
use crate::progress::Progress;

/// A manifest of a 30-layer model is under 100 KB.
const MANIFEST_LIMIT_BYTES: u64 = 8 << 20;

/// A model on the GPU, with its tokenizer if it has one.
pub struct Model {
    pub(crate) runtime: Runtime,
    pub(crate) text: Option<Text>,
}

/// Facts about a loaded model, for people and pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// The GPU.
    pub adapter: AdapterFacts,
    /// The dispatches that one token takes.
    pub plan: PlanInfo,
    /// Room for prompt and answer, tokens.
    pub context_tokens: u32,
    /// Ids a token may have.
    pub vocab: u32,
    /// GPU memory of weights, caches and activations.
    pub gpu_bytes: u64,
}

/// Facts about a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanInfo {
    /// `plain` or `seed`.
    pub name: &'static str,
    /// Dispatches of a pass that chooses a token.
    pub dispatches: usize,
    /// What was replaced to run on this device.
    pub decisions: Vec<String>,
}

impl Model {
    /// Loads a model: manifest, text files, device, pipelines, weights, self-test, in this order.
    ///
    /// `manifest_url` is absolute for a web source, relative to the folder for a folder.
    pub async fn load<S: Source>(
        source: &S,
        manifest_url: &str,
        options: &LoadOptions,
        on_progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Self, EngineError> {
        let Manifest { spec, tuning, .. } = fetch_manifest(source, manifest_url, cancel).await?;
        let text = fetch_text(source, manifest_url, &spec, cancel).await?;
        let vocab = spec.shape.vocab;
        if let Some(tokenizer_tokens) = text
            .as_ref()
            .map(Text::vocab_size)
            .filter(|tokens| *tokens > vocab)
        {
            return Err(EngineError::Vocabulary {
                tokenizer_tokens,
                vocab,
            });
        }

        let context_tokens = options.context_tokens.unwrap_or(spec.context_tokens);
        let gpu = Gpu::request(&options.device, &needs(&spec, context_tokens)).await?;
        let mut compiled = |done, total| on_progress(Progress::Compile { done, total });
        let loading = Loading::new(
            gpu,
            &spec,
            &tuning,
            options.plan,
            context_tokens,
            &mut compiled,
        )
        .await?;
        let runtime = upload(source, manifest_url, &spec, loading, on_progress, cancel).await?;

        let mut model = Self { runtime, text };
        if let Some(known) = &spec.self_test {
            model.self_test(known).await?;
        }
        on_progress(Progress::Ready);
        Ok(model)
    }

    /// Tokenizer and chat template; none for a model without `tokenizer.json`, which takes and gives ids.
    pub fn text(&self) -> Option<&Text> {
        self.text.as_ref()
    }

    /// The GPU side, for programs that look at logits.
    pub fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    /// Facts about the model, its plan and its device.
    pub fn info(&self) -> ModelInfo {
        let plan = self.runtime.plan();
        ModelInfo {
            adapter: self.runtime.gpu().facts().clone(),
            plan: PlanInfo {
                name: plan.name,
                dispatches: plan.dispatches_per_token(),
                decisions: plan.decisions.clone(),
            },
            context_tokens: plan.context_tokens,
            vocab: self.runtime.vocab(),
            gpu_bytes: self.runtime.buffer_bytes(),
        }
    }

    /// Begins a generation. Everything about the call is checked here; the GPU starts with the first
    /// [`Generation::next`].
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        options: &GenerateOptions,
        cancel: &Cancel,
    ) -> Result<Generation<'_>, EngineError> {
        Generation::new(self, prompt, options, cancel)
    }

    /// Runs the manifest's known continuation.
    async fn self_test(&mut self, known: &SelfTest) -> Result<(), EngineError> {
        self.runtime.start(&known.prompt_ids, &Choice::default())?;
        self.runtime.submit_feed(known.prompt_ids.len() as u32 - 1);
        for (index, &expected) in known.continuation_ids.iter().enumerate() {
            let pending = self.runtime.submit_choose(1);
            let got = self.runtime.read(pending).await?[0];
            if got != expected {
                return Err(EngineError::SelfTest {
                    index,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }
}

pub(crate) async fn fetch_manifest<S: Source>(
    source: &S,
    url: &str,
    cancel: &Cancel,
) -> Result<Manifest, EngineError> {
    let text = source.read_text(url, MANIFEST_LIMIT_BYTES, cancel).await?;
    monarch_manifest::parse(&text).map_err(|source| EngineError::Manifest {
        url: url.to_owned(),
        source,
    })
}

async fn fetch_text<S: Source>(
    source: &S,
    manifest_url: &str,
    spec: &ModelSpec,
    cancel: &Cancel,
) -> Result<Option<Text>, EngineError> {
    let urls = &spec.text;
    let read =
        async |file: TextFile, listed: &Option<String>| -> Result<Option<String>, EngineError> {
            let url = source.resolve(manifest_url, listed.as_deref().unwrap_or(file.name()))?;
            match source.read_text(&url, file.limit_bytes(), cancel).await {
                Ok(text) => Ok(Some(text)),
                // A file that the manifest does not name may be absent; one that it names may not.
                Err(error) if error.is_absent() && listed.is_none() => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
    let Some(tokenizer) = read(TextFile::Tokenizer, &urls.tokenizer).await? else {
        return Ok(None);
    };
    let tokenizer_config = read(TextFile::TokenizerConfig, &urls.tokenizer_config).await?;
    let chat_template = read(TextFile::ChatTemplate, &urls.chat_template).await?;
    let generation_config = read(TextFile::GenerationConfig, &urls.generation_config).await?;
    Ok(Some(Text::new(&TextFiles {
        tokenizer: &tokenizer,
        tokenizer_config: tokenizer_config.as_deref(),
        chat_template: chat_template.as_deref(),
        generation_config: generation_config.as_deref(),
    })?))
}

/// Streams the sections that the plan reads to the GPU.
async fn upload<S: Source>(
    source: &S,
    manifest_url: &str,
    spec: &ModelSpec,
    loading: Loading,
    on_progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<Runtime, EngineError> {
    let url = source.resolve(manifest_url, &spec.weights_url)?;
    let wanted: Vec<_> = {
        let names: std::collections::HashSet<&str> = loading.wanted().collect();
        spec.sections
            .iter()
            .filter(|section| names.contains(section.name.as_str()))
            .collect()
    };
    let names: Vec<&str> = wanted.iter().map(|section| section.name.as_str()).collect();
    // A load that fails on the GPU side stops the transfer too.
    let stop = cancel.clone();
    let mut sink = UploadSink {
        loading,
        names,
        failure: None,
    };
    let mut loaded = |loaded: Loaded| {
        on_progress(Progress::Fetch {
            loaded_bytes: loaded.loaded_bytes,
            total_bytes: loaded.total_bytes,
        });
    };
    let result: Result<(), WeightsError> =
        load_sections(source, &url, &wanted, &mut sink, &mut loaded, &stop).await;
    if let Some(error) = sink.failure {
        return Err(error.into());
    }
    result?;
    Ok(sink.loading.finish()?)
}

struct UploadSink<'a> {
    loading: Loading,
    names: Vec<&'a str>,
    /// First error of the GPU side; bytes that come after it are dropped.
    failure: Option<RuntimeError>,
}

impl UploadSink<'_> {
    fn attempt(&mut self, run: impl FnOnce(&mut Loading) -> Result<(), RuntimeError>) {
        if self.failure.is_none() {
            self.failure = run(&mut self.loading).err();
        }
    }
}

impl SectionSink for UploadSink<'_> {
    fn chunk(&mut self, section: usize, _offset_bytes: u64, bytes: &[u8]) {
        let name = self.names[section];
        self.attempt(|loading| loading.push(name, bytes));
    }

    fn complete(&mut self, section: usize) {
        let name = self.names[section];
        self.attempt(|loading| loading.complete(name));
    }
}
