//! What has to hold before the first weight byte is requested.
//!
//! The shape comes first, because every size is derived from it and the limits keep those sizes
//! within `u64`. Then the section table, name by name and byte by byte. Then the rest.

use std::collections::HashMap;

use crate::error::ManifestError;
use crate::section::{
    ExpectedSection, Matrix, Piece, ROPE_COS, ROPE_COS_EXT, ROPE_SIN, ROPE_SIN_EXT, Section,
};
use crate::spec::{BLOCK, LayerKind, Manifest, ModelSpec, Shape};
use crate::tuning::{Geometry, Tuning};
use crate::words::Word;

/// Every section starts at a multiple of this: GPU copies and `u32` views need it.
const SECTION_ALIGN_BYTES: u64 = 4;
/// Largest power of two to which a packer may have aligned its sections: the strictest alignment
/// of a binding that WebGPU adapters have.
const MAX_ALIGN_BYTES: u64 = 256;

const ROPE_TABLES: [&str; 4] = [ROPE_COS, ROPE_SIN, ROPE_COS_EXT, ROPE_SIN_EXT];

const MAX_LAYERS: usize = 1024;
const MAX_HIDDEN: u32 = 1 << 17;
const MAX_FFN: u32 = 1 << 20;
const MAX_VOCAB: u32 = 1 << 24;
const MAX_HEADS: u32 = 4096;
const MAX_HEAD_DIM: u32 = 1024;
const MAX_CONV_WINDOW: u32 = 64;
const MAX_POSITIONS: u32 = 1 << 24;
const MAX_WEIGHT_BYTES: u64 = 1 << 40;

/// Most invocations that any WebGPU adapter runs in one workgroup.
const MAX_WORKGROUP: u32 = 1024;
/// Most workgroups of one grid dimension on every WebGPU adapter.
const MAX_GRID: u32 = 65_535;
const MAX_SPLIT_ENTRIES: usize = 1024;
/// Smallest and largest number of lanes that WebGPU adapters have.
const SUBGROUP_SIZES: (u32, u32) = (4, 128);

impl Manifest {
    /// Checks everything that [`parse`](crate::parse) checks, for manifests that were put together.
    pub fn validate(&self) -> Result<(), ManifestError> {
        self.spec.validate()?;
        self.tuning.validate(&self.spec.shape)
    }
}

impl Shape {
    /// Checks that the sizes are within limits and fit each other.
    ///
    /// After this no size that is derived from the shape can overflow.
    pub fn validate(&self) -> Result<(), ManifestError> {
        list_length("runtime.shape.layerTypes", self.layers.len(), 1, MAX_LAYERS)?;
        for (name, value, max) in [
            ("hidden", self.hidden, MAX_HIDDEN),
            ("ffn", self.ffn, MAX_FFN),
            ("vocab", self.vocab, MAX_VOCAB),
            ("heads", self.heads, MAX_HEADS),
            ("kvHeads", self.kv_heads, MAX_HEADS),
            ("headDim", self.head_dim, MAX_HEAD_DIM),
        ] {
            range(|| format!("runtime.shape.{name}"), value, 1, max)?;
        }
        // A window of one token would be no convolution, and its state would have no bytes.
        let path = || "runtime.shape.convCache".to_owned();
        range(path, self.conv_window, 2, MAX_CONV_WINDOW)?;
        multiple(|| "runtime.shape.hidden".to_owned(), self.hidden, BLOCK)?;
        multiple(|| "runtime.shape.ffn".to_owned(), self.ffn, BLOCK)?;
        multiple(|| "runtime.shape.headDim".to_owned(), self.head_dim, 2)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ManifestError::HeadGroups {
                heads: self.heads,
                kv_heads: self.kv_heads,
            });
        }
        if self.layers.contains(&LayerKind::Attention) {
            let path = || "runtime.shape: heads * headDim".to_owned();
            multiple(path, self.heads * self.head_dim, BLOCK)?;
        }
        for (name, value) in [("normEps", self.norm_eps), ("ropeTheta", self.rope_theta)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(ManifestError::FieldPositive {
                    path: format!("runtime.shape.{name}"),
                    value: value.into(),
                });
            }
        }
        Ok(())
    }
}

impl ModelSpec {
    fn validate(&self) -> Result<(), ManifestError> {
        self.shape.validate()?;

        let path = || "runtime.maxPositions".to_owned();
        range(path, self.rope_table_positions, 1, MAX_POSITIONS)?;
        let path = || "runtime.maxTotalPositions".to_owned();
        range(path, self.context_tokens, 1, MAX_POSITIONS)?;
        if self.context_tokens > self.rope_table_positions {
            return Err(ManifestError::ContextTooLong {
                context_tokens: self.context_tokens,
                rope_table_positions: self.rope_table_positions,
            });
        }

        let text = &self.text;
        let urls = [
            ("weightsUrl", Some(&self.weights_url)),
            ("text.tokenizer", text.tokenizer.as_ref()),
            ("text.tokenizerConfig", text.tokenizer_config.as_ref()),
            ("text.chatTemplate", text.chat_template.as_ref()),
            ("text.generationConfig", text.generation_config.as_ref()),
        ];
        for (name, url) in urls {
            if url.is_some_and(|url| url.is_empty()) {
                let path = format!("runtime.{name}");
                return Err(ManifestError::EmptyText { path });
            }
        }

        let path = || "runtime.weightBytes".to_owned();
        range(path, self.weight_bytes, 1, MAX_WEIGHT_BYTES)?;
        self.validate_names_and_sizes()?;
        self.validate_ranges()?;
        self.validate_aliases()?;
        self.validate_self_test()
    }

    /// Every section is wanted, has the size that the shape gives it, and none is missing.
    fn validate_names_and_sizes(&self) -> Result<(), ManifestError> {
        let mut listed = HashMap::new();
        for (second, section) in self.sections.iter().enumerate() {
            if let Some(first) = listed.insert(section.name.as_str(), second) {
                return Err(ManifestError::DuplicateSection {
                    section: section.name.clone(),
                    first,
                    second,
                });
            }
        }
        let expected = self.shape.section_sizes();
        let by_name: HashMap<&str, &ExpectedSection> =
            expected.iter().map(|e| (e.name.as_str(), e)).collect();
        for section in &self.sections {
            match by_name.get(section.name.as_str()) {
                Some(expected) if section.bytes == expected.bytes => {}
                Some(expected) => {
                    return Err(ManifestError::SectionSize {
                        section: section.name.clone(),
                        shape: expected.dimensions.clone(),
                        listed_bytes: section.bytes,
                        needed_bytes: expected.bytes,
                    });
                }
                // Their sizes depend on the context and are checked below.
                None if ROPE_TABLES.contains(&section.name.as_str()) => {}
                None => {
                    return Err(ManifestError::UnknownSection {
                        section: section.name.clone(),
                    });
                }
            }
        }
        for expected in &expected {
            if !expected.optional && !listed.contains_key(expected.name.as_str()) {
                return Err(ManifestError::MissingSection {
                    section: expected.name.clone(),
                    shape: expected.dimensions.clone(),
                    needed_bytes: expected.bytes,
                });
            }
        }
        for layer in (0u32..).take(self.shape.layers.len()) {
            let name = |piece| Matrix::MlpDown.section(Some(layer), piece);
            partners(
                &listed,
                &name(Piece::CodesKMajor),
                &name(Piece::ScalesKMajor),
            )?;
        }
        partners(&listed, ROPE_COS, ROPE_SIN)?;
        partners(&listed, ROPE_COS_EXT, ROPE_SIN_EXT)?;
        if listed.contains_key(ROPE_COS_EXT) {
            partners(&listed, ROPE_COS, ROPE_COS_EXT)?;
        }
        self.validate_rope_tables()
    }

    /// The longest table has [`ModelSpec::rope_table_positions`] rows, the base table in front of
    /// an extended one may have fewer: its length is the only size that the packer chose.
    fn validate_rope_tables(&self) -> Result<(), ManifestError> {
        let (row_bytes, pairs) = (self.shape.rope_row_bytes(), self.shape.head_dim / 2);
        let max_positions = u64::from(self.rope_table_positions);
        let rows = |section: &Section, positions: u64| {
            let needed_bytes = positions * row_bytes;
            if section.bytes == needed_bytes {
                return Ok(());
            }
            Err(ManifestError::SectionSize {
                section: section.name.clone(),
                shape: format!("positions={positions} Dh/2={pairs}"),
                listed_bytes: section.bytes,
                needed_bytes,
            })
        };
        let (Some(cos), Some(sin)) = (self.section(ROPE_COS), self.section(ROPE_SIN)) else {
            return Ok(());
        };
        let extended = (self.section(ROPE_COS_EXT), self.section(ROPE_SIN_EXT));
        let (Some(cos_ext), Some(sin_ext)) = extended else {
            rows(cos, max_positions)?;
            return rows(sin, max_positions);
        };
        rows(cos_ext, max_positions)?;
        rows(sin_ext, max_positions)?;
        let positions = cos.bytes / row_bytes;
        if positions * row_bytes != cos.bytes || !(1..=max_positions).contains(&positions) {
            return Err(ManifestError::RopeTableSize {
                section: cos.name.clone(),
                listed_bytes: cos.bytes,
                row_bytes,
                max_positions: self.rope_table_positions,
            });
        }
        rows(sin, positions)
    }

    /// Every byte of the file belongs to a section, and to one only unless they are the same.
    fn validate_ranges(&self) -> Result<(), ManifestError> {
        for section in &self.sections {
            if !section.offset_bytes.is_multiple_of(SECTION_ALIGN_BYTES) {
                return Err(ManifestError::SectionAlignment {
                    section: section.name.clone(),
                    offset_bytes: section.offset_bytes,
                    multiple_of: SECTION_ALIGN_BYTES,
                });
            }
            let end_bytes = section.offset_bytes.checked_add(section.bytes);
            if end_bytes.is_none_or(|end_bytes| end_bytes > self.weight_bytes) {
                return Err(ManifestError::SectionPastEnd {
                    section: section.name.clone(),
                    offset_bytes: section.offset_bytes,
                    bytes: section.bytes,
                    weight_bytes: self.weight_bytes,
                });
            }
        }
        let mut in_file_order: Vec<&Section> = self.sections.iter().collect();
        in_file_order.sort_by_key(|section| (section.offset_bytes, section.bytes));
        let mut previous: Option<&Section> = None;
        for section in in_file_order {
            let previous_end_bytes = previous.map_or(0, Section::end_bytes);
            match previous {
                Some(previous) if same_bytes(previous, section) => {}
                Some(previous) if section.offset_bytes < previous_end_bytes => {
                    return Err(ManifestError::SectionOverlap {
                        section: section.name.clone(),
                        offset_bytes: section.offset_bytes,
                        other: previous.name.clone(),
                        other_end_bytes: previous_end_bytes,
                    });
                }
                _ if !is_padding(previous_end_bytes, section.offset_bytes) => {
                    return Err(ManifestError::SectionGap {
                        section: section.name.clone(),
                        offset_bytes: section.offset_bytes,
                        previous_end_bytes,
                    });
                }
                _ => {}
            }
            previous = Some(section);
        }
        let end_bytes = previous.map_or(0, Section::end_bytes);
        if is_padding(end_bytes, self.weight_bytes) {
            return Ok(());
        }
        Err(ManifestError::WeightsTail {
            weight_bytes: self.weight_bytes,
            end_bytes,
        })
    }

    /// A tied embedding is the head's bytes, and the same bytes have one digest.
    fn validate_aliases(&self) -> Result<(), ManifestError> {
        if self.shape.tied_embedding {
            for piece in [Piece::Codes, Piece::Scales, Piece::ZeroPoints] {
                let find = |matrix: Matrix| self.section(&matrix.section(None, piece));
                if let (Some(head), Some(embed)) = (find(Matrix::Head), find(Matrix::Embed))
                    && !same_bytes(head, embed)
                {
                    return Err(ManifestError::TiedSections {
                        section: head.name.clone(),
                        offset_bytes: head.offset_bytes,
                        other: embed.name.clone(),
                        other_offset_bytes: embed.offset_bytes,
                    });
                }
            }
        }
        let mut digests: HashMap<u64, &Section> = HashMap::new();
        for section in self.sections.iter().filter(|s| s.sha256.is_some()) {
            let other = *digests.entry(section.offset_bytes).or_insert(section);
            if other.sha256 != section.sha256 {
                return Err(ManifestError::AliasDigest {
                    section: section.name.clone(),
                    other: other.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn validate_self_test(&self) -> Result<(), ManifestError> {
        let Some(test) = &self.self_test else {
            return Ok(());
        };
        let (prompt, continuation) = (&test.prompt_ids, &test.continuation_ids);
        let context = self.context_tokens as usize;
        for (name, ids) in [("promptIds", prompt), ("continuationIds", continuation)] {
            let path = format!("runtime.selfTest.{name}");
            list_length(&path, ids.len(), 1, context)?;
            if let Some(index) = ids.iter().position(|id| *id >= self.shape.vocab) {
                return Err(ManifestError::TokenId {
                    path: format!("{path}[{index}]"),
                    id: ids[index],
                    vocab: self.shape.vocab,
                });
            }
        }
        if prompt.len() + continuation.len() > context {
            return Err(ManifestError::SelfTestTooLong {
                prompt_ids: prompt.len(),
                continuation_ids: continuation.len(),
                context_tokens: self.context_tokens,
            });
        }
        Ok(())
    }
}

impl Tuning {
    fn validate(&self, shape: &Shape) -> Result<(), ManifestError> {
        for (path, value, max) in [
            ("runtime.maxQueries", self.tokens_per_pass, MAX_GRID),
            (
                "runtime.planPosition",
                self.plan_context_tokens,
                MAX_POSITIONS,
            ),
            ("runtime.samplePartials", self.choice_partials, MAX_GRID),
            ("candidate.mlpSlices", self.mlp_slices, shape.ffn / BLOCK),
            ("candidate.mlpWorkgroup", self.mlp_workgroup, MAX_WORKGROUP),
            ("candidate.foldLanes", self.fold_lanes, MAX_WORKGROUP),
        ] {
            range(|| path.to_owned(), value, 1, max)?;
        }
        power_of_two(|| "candidate.foldLanes".to_owned(), self.fold_lanes)?;
        let path = || "candidate.padding".to_owned();
        range(path, self.tile_padding_elems, 0, MAX_WORKGROUP)?;
        let path = || "runtime.expectedSubgroupSize".to_owned();
        subgroup_size(path, self.expected_subgroup_size)?;

        for (matrix, matvec) in &self.matvecs {
            let name = matvec_name(*matrix, || "candidate.matvec.embed".to_owned())?;
            matvec
                .geometry
                .validate(|| format!("candidate.matvec.{name}.geometry"))?;
        }
        for (index, (matrix, geometry)) in self.fallback_geometries.iter().enumerate() {
            let name = matvec_name(*matrix, || format!("runtime.knee[{index}].shape"))?;
            geometry.validate(|| format!("runtime.knee[{index}].geometry"))?;
            let earlier = &self.fallback_geometries[..index];
            if earlier.iter().any(|(other, _)| other == matrix) {
                return Err(ManifestError::DuplicateEntry {
                    path: format!("runtime.knee[{index}].shape"),
                    value: name.to_owned(),
                });
            }
        }
        for (index, feature) in self.extra_features.iter().enumerate() {
            if self.extra_features[..index].contains(feature) {
                return Err(ManifestError::DuplicateEntry {
                    path: format!("runtime.extraFeatures[{index}]"),
                    value: feature.word().to_owned(),
                });
            }
        }
        self.validate_splits()
    }

    fn validate_splits(&self) -> Result<(), ManifestError> {
        if let Some(splits) = self.attention_splits {
            range(|| "candidate.flashBlocks".to_owned(), splits, 1, MAX_GRID)?;
        }
        let by_context = &self.attention_splits_by_context;
        // Without a fixed number there has to be one by context.
        let min_entries = usize::from(self.attention_splits.is_none());
        let path = "runtime.flashOptima";
        list_length(path, by_context.len(), min_entries, MAX_SPLIT_ENTRIES)?;
        let mut previous_tokens = 0;
        for (index, entry) in by_context.iter().enumerate() {
            let path = |name: &str| format!("runtime.flashOptima[{index}].{name}");
            range(|| path("positions"), entry.context_tokens, 1, MAX_POSITIONS)?;
            range(|| path("blocks"), entry.splits, 1, MAX_GRID)?;
            if entry.context_tokens <= previous_tokens {
                return Err(ManifestError::ContextOrder {
                    path: path("positions"),
                    context_tokens: entry.context_tokens,
                    previous_tokens,
                });
            }
            previous_tokens = entry.context_tokens;
        }
        Ok(())
    }
}

impl Geometry {
    fn validate(&self, path: impl Fn() -> String) -> Result<(), ManifestError> {
        let at = |name: &str| format!("{}.{name}", path());
        range(|| at("workgroupSize"), self.workgroup, 1, MAX_WORKGROUP)?;
        subgroup_size(|| at("subgroupSize"), self.subgroup_size)?;
        range(
            || at("rowsPerSubgroup"),
            self.rows_per_subgroup,
            1,
            MAX_WORKGROUP,
        )?;
        range(
            || at("subgroupsPerRow"),
            self.subgroups_per_row,
            1,
            MAX_WORKGROUP,
        )?;
        // Whole subgroups, and whole groups of those that share a row.
        let lanes_per_row = self.subgroup_size * self.subgroups_per_row;
        multiple(|| at("workgroupSize"), self.workgroup, lanes_per_row)
    }
}

fn partners(listed: &HashMap<&str, usize>, one: &str, other: &str) -> Result<(), ManifestError> {
    let (section, partner) = match (listed.contains_key(one), listed.contains_key(other)) {
        (true, false) => (one, other),
        (false, true) => (other, one),
        (true, true) | (false, false) => return Ok(()),
    };
    Err(ManifestError::SectionPartner {
        section: section.to_owned(),
        partner: partner.to_owned(),
    })
}

fn same_bytes(one: &Section, other: &Section) -> bool {
    (one.offset_bytes, one.bytes) == (other.offset_bytes, other.bytes)
}

/// True when `offset_bytes` is where `end_bytes` gets to by aligning it.
fn is_padding(end_bytes: u64, offset_bytes: u64) -> bool {
    let mut align_bytes = 1;
    while align_bytes <= MAX_ALIGN_BYTES {
        if end_bytes.next_multiple_of(align_bytes) == offset_bytes {
            return true;
        }
        align_bytes *= 2;
    }
    false
}

fn matvec_name(
    matrix: Matrix,
    path: impl FnOnce() -> String,
) -> Result<&'static str, ManifestError> {
    if matrix == Matrix::Embed {
        return Err(ManifestError::UnknownWord {
            path: path(),
            found: "embed".to_owned(),
            known: Matrix::vocabulary(),
        });
    }
    Ok(matrix.word())
}

fn subgroup_size(path: impl Fn() -> String, value: u32) -> Result<(), ManifestError> {
    let (min, max) = SUBGROUP_SIZES;
    range(&path, value, min, max)?;
    power_of_two(path, value)
}

fn range(
    path: impl FnOnce() -> String,
    value: impl Into<u64>,
    min: u32,
    max: impl Into<u64>,
) -> Result<(), ManifestError> {
    let (value, min, max) = (value.into(), u64::from(min), max.into());
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ManifestError::FieldRange {
        path: path(),
        value,
        min,
        max,
    })
}

fn multiple(
    path: impl FnOnce() -> String,
    value: u32,
    multiple_of: u32,
) -> Result<(), ManifestError> {
    if value.is_multiple_of(multiple_of) {
        return Ok(());
    }
    Err(ManifestError::FieldMultiple {
        path: path(),
        value: value.into(),
        multiple_of: multiple_of.into(),
    })
}

fn power_of_two(path: impl FnOnce() -> String, value: u32) -> Result<(), ManifestError> {
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(ManifestError::FieldPowerOfTwo {
        path: path(),
        value: value.into(),
    })
}

fn list_length(path: &str, entries: usize, min: usize, max: usize) -> Result<(), ManifestError> {
    if (min..=max).contains(&entries) {
        return Ok(());
    }
    Err(ManifestError::ListLength {
        path: path.to_owned(),
        entries,
        min,
        max,
    })
}
