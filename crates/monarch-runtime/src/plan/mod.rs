//! What one pass does, as data: a list of dispatches over named buffers.
//!
//! A plan is built without a device, so tests read it and twins can run it. Two plans exist: [`PlanChoice::Plain`], one
//! dispatch per operation, is the reference; [`PlanChoice::Seed`] joins what the seed's runtime joins.

mod attention;
mod conv;
mod embed;
mod head;
mod matvec;
mod mlp;

use std::collections::BTreeMap;

use monarch_kernels::{Features, Kernel, KernelError, Limits, kernel};
use monarch_manifest::{BLOCK, LayerKind, Matrix, ModelSpec, Piece, Shape, Tuning, Vector};
use serde::{Deserialize, Serialize};

use crate::buffers::{Activation, BufferId, BufferSizes, Layer, VectorId};
use crate::device::{DeviceLimits, DeviceNeeds, Gpu};
use crate::error::RuntimeError;
use crate::upload::{Destination, Destinations, Half, Span};

/// Which plan to build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanChoice {
    /// What the manifest's tuning asks for.
    #[default]
    Auto,
    /// One dispatch per operation.
    Plain,
    /// What the seed's runtime does: norms, gates, rotary and the MLP inside their neighbours, as the tuning says.
    Seed,
}

/// What plans need to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// shader-f16 is enabled.
    pub f16: bool,
    /// Lanes of a subgroup as measured; 0 when subgroups are not used.
    pub subgroup_size: u32,
    /// Limits of the device.
    pub limits: DeviceLimits,
}

impl Capabilities {
    /// Those of an open device.
    pub fn of(gpu: &Gpu) -> Self {
        let facts = gpu.facts();
        let subgroup_size = if gpu.has("subgroups") {
            facts.subgroup_size
        } else {
            0
        };
        Self {
            f16: gpu.has("shader-f16"),
            subgroup_size,
            limits: facts.limits,
        }
    }

    fn kernel_limits(&self) -> Limits {
        Limits {
            max_workgroups_per_dimension: self.limits.max_workgroups,
            max_invocations_per_workgroup: self.limits.max_invocations,
            max_workgroup_memory_bytes: self.limits.max_workgroup_bytes,
        }
    }
}

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// Its variant.
    pub features: Features,
    /// Layer, kernel and what it computes: `L3 matvec_q4 qkv`.
    pub label: String,
    /// Numbers fixed in the pipeline.
    pub overrides: Vec<(&'static str, f64)>,
    /// One buffer per binding, in the kernel's order.
    pub bindings: Vec<BufferId>,
    /// Workgroups to dispatch.
    pub workgroups: [u32; 3],
}

/// The dispatches of a pass, the buffers they use and where those come from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `plain` or `seed`.
    pub name: &'static str,
    /// Embedding and layers: what every pass does.
    pub body: Vec<Stage>,
    /// Final norm, head and choice: only passes that choose a token.
    pub head: Vec<Stage>,
    /// Moves a pass without a head on to the next position.
    pub advance: Stage,
    /// Size of every buffer, bytes.
    pub buffers: BufferSizes,
    /// Where each section's bytes go. Sections not named here are not fetched.
    pub destinations: Destinations,
    /// Buffers whose contents the host computes.
    pub constants: Vec<(BufferId, Vec<u8>)>,
    /// What had to be replaced to run here, in plain words.
    pub decisions: Vec<String>,
    /// KV rows.
    pub context_tokens: u32,
}

impl Plan {
    /// Builds a plan for a device.
    pub fn new(
        spec: &ModelSpec,
        tuning: &Tuning,
        capabilities: &Capabilities,
        choice: PlanChoice,
        context_tokens: u32,
    ) -> Result<Self, RuntimeError> {
        if context_tokens > spec.rope_table_positions {
            return Err(RuntimeError::ContextTooLong {
                asked_tokens: context_tokens,
                model_tokens: spec.rope_table_positions,
            });
        }
        let is_seed = match choice {
            PlanChoice::Auto => !tuning.plain_plan,
            PlanChoice::Plain => false,
            PlanChoice::Seed => true,
        };
        let mut builder = Builder {
            spec,
            shape: &spec.shape,
            tuning,
            capabilities,
            is_seed,
            context_tokens,
            stages: Vec::new(),
            buffers: BufferSizes::from([
                (BufferId::Nothing, 16),
                (BufferId::State, 64),
                (BufferId::Tokens, u64::from(context_tokens + 1) * 4),
            ]),
            destinations: BTreeMap::new(),
            constants: Vec::new(),
            decisions: Vec::new(),
        };
        builder.embed()?;
        for (layer, kind) in (0..).zip(&spec.shape.layers) {
            match kind {
                LayerKind::Conv => builder.conv(layer)?,
                LayerKind::Attention => builder.attention(layer)?,
            }
            builder.mlp(layer)?;
        }
        let body = std::mem::take(&mut builder.stages);
        builder.head()?;
        let head = std::mem::take(&mut builder.stages);
        builder.advance()?;
        let advance = builder.stages.remove(0);
        Ok(Self {
            name: if is_seed { "seed" } else { "plain" },
            body,
            head,
            advance,
            buffers: builder.buffers,
            destinations: builder.destinations,
            constants: builder.constants,
            decisions: builder.decisions,
            context_tokens,
        })
    }

    /// What a model needs of a device. An upper bound over the plans, found without a device.
    pub fn needs(spec: &ModelSpec, context_tokens: u32) -> DeviceNeeds {
        let shape = &spec.shape;
        let kv_bytes = u64::from(context_tokens) * u64::from(shape.kv_heads * shape.head_dim) * 4;
        let rope_bytes = u64::from(context_tokens) * u64::from(shape.head_dim) * 4;
        // Matrices are cut into row chunks, so only these must fit whole.
        let binding_bytes = kv_bytes.max(rope_bytes).max(u64::from(shape.vocab) * 4);
        let largest_section = spec
            .sections
            .iter()
            .map(|section| section.bytes)
            .max()
            .unwrap_or(0);
        let attention_layers = shape
            .layers
            .iter()
            .filter(|kind| **kind == LayerKind::Attention)
            .count() as u64;
        DeviceNeeds {
            binding_bytes,
            buffer_bytes: binding_bytes
                .max(largest_section.min(wgpu::Limits::default().max_buffer_size)),
            total_bytes: spec.weight_bytes + attention_layers * 2 * kv_bytes + rope_bytes,
        }
    }

    /// Every dispatch once: body, head, `advance`.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        self.body.iter().chain(&self.head).chain([&self.advance])
    }

    /// Dispatches of a pass that chooses a token.
    pub fn dispatches_per_token(&self) -> usize {
        self.body.len() + self.head.len()
    }
}

/// Rows of a matrix that one binding can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowChunk {
    chunk: u32,
    first_row: u32,
    rows: u32,
}

/// A plan in the making.
struct Builder<'a> {
    spec: &'a ModelSpec,
    shape: &'a Shape,
    tuning: &'a Tuning,
    capabilities: &'a Capabilities,
    is_seed: bool,
    context_tokens: u32,
    stages: Vec<Stage>,
    buffers: BufferSizes,
    destinations: Destinations,
    constants: Vec<(BufferId, Vec<u8>)>,
    decisions: Vec<String>,
}

impl Builder<'_> {
    /// Adds a dispatch whose products are f32.
    fn stage(
        &mut self,
        layer: Layer,
        name: &'static str,
        what: &str,
        workgroups: Result<[u32; 3], KernelError>,
        overrides: Vec<(&'static str, f64)>,
        bindings: &[BufferId],
    ) -> Result<(), RuntimeError> {
        let mut label = layer.map(|layer| format!("L{layer} ")).unwrap_or_default() + name;
        if !what.is_empty() {
            label = format!("{label} {what}");
        }
        let workgroups = workgroups.map_err(|source| RuntimeError::Kernel {
            label: label.clone(),
            source,
        })?;
        let kernel = kernel(name);
        debug_assert_eq!(kernel.bindings.len(), bindings.len(), "{label}");
        self.stages.push(Stage {
            kernel,
            features: Features {
                f16: false,
                subgroups: self.capabilities.subgroup_size > 0,
            },
            label,
            overrides,
            bindings: bindings.to_vec(),
            workgroups,
        });
        Ok(())
    }

    /// Lets the dispatch added last multiply in f16, where tuning asks for it and the device can.
    fn products_in_f16(&mut self, wanted: bool, what: &str) {
        if wanted && !self.capabilities.f16 {
            self.decide(format!(
                "{what}: products in f16 replaced by f32, this device has no shader-f16"
            ));
        } else if let Some(stage) = self.stages.last_mut() {
            stage.features.f16 = wanted;
        }
    }

    fn limits(&self) -> Limits {
        self.capabilities.kernel_limits()
    }

    /// Notes a replacement once.
    fn decide(&mut self, decision: String) {
        if !self.decisions.contains(&decision) {
            self.decisions.push(decision);
        }
    }

    /// A workgroup of `wanted` invocations, or the most the device has.
    fn workgroup(&mut self, what: &str, wanted: u32) -> u32 {
        let most = self.capabilities.limits.max_invocations;
        let most = if most.is_power_of_two() {
            most
        } else {
            most.next_power_of_two() / 2
        };
        if wanted > most {
            self.decide(format!(
                "{what}: workgroup of {wanted} replaced by {most}, the most this device has"
            ));
        }
        wanted.min(most)
    }

    /// Lanes that share a row: a real subgroup, or `wanted` lanes through workgroup memory.
    fn lanes(&self, wanted: u32, workgroup: u32) -> u32 {
        match self.capabilities.subgroup_size {
            0 => wanted.min(workgroup),
            size => size.min(workgroup),
        }
    }

    /// An activation of `elems` f32.
    fn activation(&mut self, activation: Activation, elems: u32) -> BufferId {
        let id = BufferId::Activation(activation);
        self.reserve(id, u64::from(elems) * 4);
        id
    }

    /// Makes a buffer at least `bytes` long, whole 16-byte words.
    fn reserve(&mut self, id: BufferId, bytes: u64) {
        let bytes = bytes.next_multiple_of(16);
        let size = self.buffers.entry(id).or_insert(bytes);
        *size = bytes.max(*size);
    }

    /// A vector, or several side by side, each taken from its section.
    fn vector(&mut self, layer: Layer, vector: VectorId, sections: &[(String, u64)]) -> BufferId {
        let id = BufferId::Vector { layer, vector };
        let mut offset_bytes = 0;
        for (section, elems) in sections {
            let span = Span {
                bytes: elems * 4,
                buffer: id,
                buffer_offset_bytes: offset_bytes,
            };
            self.send(section, Destination::Spans(vec![span]));
            offset_bytes += elems * 4;
        }
        self.reserve(id, offset_bytes);
        id
    }

    /// The norm in front of an operator, an MLP or the head.
    fn norm(&mut self, layer: Layer, vector: VectorId, section: Vector) -> BufferId {
        self.vector(
            layer,
            vector,
            &[(section.section(layer), section.elems(self.shape))],
        )
    }

    fn send(&mut self, section: &str, destination: Destination) {
        let previous = self
            .destinations
            .insert(section.to_owned(), destination.clone());
        // Two buffers may be made of one section only in the same way.
        debug_assert!(
            previous.is_none_or(|previous| previous == destination),
            "{section} goes to two places"
        );
    }

    fn has_piece(&self, layer: Layer, matrix: Matrix, piece: Piece) -> bool {
        self.spec.section(&matrix.section(layer, piece)).is_some()
    }

    /// Bytes of one row of a piece.
    fn row_bytes(&self, matrix: Matrix, piece: Piece) -> u64 {
        let (rows, _) = matrix.rows_cols(self.shape);
        matrix.piece_bytes(self.shape, piece) / u64::from(rows)
    }

    /// Cuts a matrix into chunks of rows that fit a binding.
    fn row_chunks(&self, matrix: Matrix) -> Vec<RowChunk> {
        let (rows, _) = matrix.rows_cols(self.shape);
        let widest = self.row_bytes(matrix, Piece::Codes);
        row_chunks(rows, widest, self.capabilities.limits.max_binding_bytes)
    }

    /// Buffers of one chunk: codes, scales, zero points; [`BufferId::Nothing`] for zero points that are 8 everywhere.
    fn matrix_rows(&mut self, layer: Layer, matrix: Matrix, chunk: u32) -> [BufferId; 3] {
        [Piece::Codes, Piece::Scales, Piece::ZeroPoints].map(|piece| {
            if !self.has_piece(layer, matrix, piece) {
                return BufferId::Nothing;
            }
            let row_bytes = self.row_bytes(matrix, piece);
            let spans: Vec<Span> = self
                .row_chunks(matrix)
                .into_iter()
                .map(|rows| Span {
                    bytes: u64::from(rows.rows) * row_bytes,
                    buffer: BufferId::Matrix {
                        layer,
                        matrix,
                        piece,
                        chunk: rows.chunk,
                    },
                    buffer_offset_bytes: 0,
                })
                .collect();
            for span in &spans {
                self.reserve(span.buffer, span.bytes);
            }
            self.send(&matrix.section(layer, piece), Destination::Spans(spans));
            BufferId::Matrix {
                layer,
                matrix,
                piece,
                chunk,
            }
        })
    }

    /// The bias of a projection, whole; [`BufferId::Nothing`] when it has none.
    fn bias(&mut self, layer: Layer, matrix: Matrix) -> BufferId {
        if !self.has_piece(layer, matrix, Piece::Bias) {
            return BufferId::Nothing;
        }
        let id = BufferId::Matrix {
            layer,
            matrix,
            piece: Piece::Bias,
            chunk: 0,
        };
        let bytes = matrix.piece_bytes(self.shape, Piece::Bias);
        self.reserve(id, bytes);
        let span = Span {
            bytes,
            buffer: id,
            buffer_offset_bytes: 0,
        };
        self.send(
            &matrix.section(layer, Piece::Bias),
            Destination::Spans(vec![span]),
        );
        id
    }

    /// Codes and scales of the down projection, K-major: from their own sections, or regrouped on the way.
    fn down_k_major(&mut self, layer: Layer) -> [BufferId; 2] {
        let matrix = Matrix::MlpDown;
        let (rows, cols) = matrix.rows_cols(self.shape);
        let scale_bytes = self.shape.scale_type.bytes() as u32;
        [
            (Piece::CodesKMajor, Piece::Codes, BLOCK / 2),
            (Piece::ScalesKMajor, Piece::Scales, scale_bytes),
        ]
        .map(|(piece, row_major, elem_bytes)| {
            let buffer = BufferId::Matrix {
                layer,
                matrix,
                piece,
                chunk: 0,
            };
            let bytes = matrix.piece_bytes(self.shape, piece);
            self.reserve(buffer, bytes);
            if self.has_piece(layer, matrix, piece) {
                let span = Span {
                    bytes,
                    buffer,
                    buffer_offset_bytes: 0,
                };
                self.send(
                    &matrix.section(layer, piece),
                    Destination::Spans(vec![span]),
                );
            } else {
                let destination = Destination::Transposed {
                    buffer,
                    rows,
                    cols: cols / BLOCK,
                    elem_bytes,
                };
                self.send(&matrix.section(layer, row_major), destination);
            }
            buffer
        })
    }

    /// The rotary table: from the manifest's, or computed.
    fn rope(&mut self) -> BufferId {
        let id = BufferId::Rope;
        if self.buffers.contains_key(&id) {
            return id;
        }
        let row_bytes = self.shape.rope_row_bytes() as u32;
        match self.spec.rope_table(self.context_tokens) {
            Some(table) => {
                self.reserve(id, u64::from(table.positions) * u64::from(row_bytes) * 2);
                for (section, half) in [(table.cos, Half::First), (table.sin, Half::Second)] {
                    let destination = Destination::HalfRows {
                        buffer: id,
                        half_bytes: row_bytes,
                        half,
                    };
                    self.send(&section.name, destination);
                }
            }
            None => {
                let table = rope_table(self.shape, self.context_tokens);
                self.reserve(id, table.len() as u64 * 4);
                self.constants
                    .push((id, bytemuck::cast_slice(&table).to_vec()));
            }
        }
        id
    }
}

/// Cuts `rows` rows of `row_bytes` into chunks of at most `binding_bytes`.
///
/// Chunks begin at multiples of 64 rows, so that every piece of a chunk begins at a whole word whatever its row length.
fn row_chunks(rows: u32, row_bytes: u64, binding_bytes: u64) -> Vec<RowChunk> {
    let most = (binding_bytes / row_bytes).min(u64::from(u32::MAX)) as u32 / 64 * 64;
    let most = most.max(64);
    (0..rows.div_ceil(most))
        .map(|chunk| RowChunk {
            chunk,
            first_row: chunk * most,
            rows: most.min(rows - chunk * most),
        })
        .collect()
}

/// f32 `[positions, Dh]`: cosines of the first half of the head, then sines, as the reference computes them.
fn rope_table(shape: &Shape, positions: u32) -> Vec<f32> {
    let half = shape.head_dim / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|i| {
            1.0 / shape
                .rope_theta
                .powf(2.0 * i as f32 / shape.head_dim as f32)
        })
        .collect();
    (0..positions)
        .flat_map(|position| {
            let angles = frequencies
                .iter()
                .map(move |frequency| position as f32 * frequency);
            let cosines = angles.clone().map(|angle| f64::from(angle).cos() as f32);
            cosines
                .chain(angles.map(|angle| f64::from(angle).sin() as f32))
                .collect::<Vec<_>>()
        })
        .collect()
}
