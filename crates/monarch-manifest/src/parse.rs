//! The file's fields, read once each.

use std::collections::BTreeMap;

use crate::document::{Field, Json, Object};
use crate::error::ManifestError;
use crate::section::{Matrix, Section};
use crate::spec::{
    BLOCK, Format, Manifest, ModelSpec, ScaleType, SelfTest, Shape, Source, TextUrls,
};
use crate::tuning::{ContextSplits, Geometry, Matvec, Reduction, Tuning};
use crate::words::Word;

/// Longest manifest that is read: 8 MiB. The seed's has 25 KB for 199 sections; 1,024 layers with
/// digests stay under 6 MB.
pub const TEXT_LIMIT_BYTES: usize = 8 << 20;

/// Bits per code, the only number of them that `quantBits` may state.
pub(crate) const CODE_BITS: u32 = 4;

pub(crate) const DEFAULT_NORM_EPS: f32 = 1e-5;
pub(crate) const DEFAULT_ROPE_THETA: f32 = 1e6;

/// Fields of `runtime` that are tuning. With `candidate` they come all together or not at all.
const TUNING_FIELDS: [&str; 9] = [
    "maxQueries",
    "samplePartials",
    "planPosition",
    "knee",
    "dequantVariant",
    "flashOptima",
    "extraFeatures",
    "powerPreference",
    "expectedSubgroupSize",
];

/// Parses and validates a manifest.
///
/// Everything that can be known without the weights is checked here: field names and types, the
/// shape's arithmetic, and the name, size, offset and neighbours of every section.
///
/// # Errors
///
/// The first problem found, with the path of its field or the name of its section.
pub fn parse(text: &str) -> Result<Manifest, ManifestError> {
    if text.len() > TEXT_LIMIT_BYTES {
        return Err(ManifestError::TextTooLong {
            text_bytes: text.len(),
            limit_bytes: TEXT_LIMIT_BYTES,
        });
    }
    let json: Json = serde_json::from_str(text).map_err(|source| ManifestError::Syntax {
        line: source.line(),
        column: source.column(),
        source,
    })?;
    let manifest = manifest(Object::root(json)?)?;
    manifest.validate()?;
    Ok(manifest)
}

fn manifest(mut root: Object) -> Result<Manifest, ManifestError> {
    let format = root.optional("format").map(format).transpose()?;
    let mut runtime = root.required("runtime")?.object()?;

    let shape = shape(runtime.required("shape")?.object()?)?;
    let tuning = tuning(format, &shape, &mut root, &mut runtime)?;
    let spec = ModelSpec {
        shape,
        weights_url: runtime.required("weightsUrl")?.text()?,
        weight_bytes: runtime.required("weightBytes")?.u64()?,
        sections: each(runtime.required("sections")?, section)?,
        rope_table_positions: runtime.required("maxPositions")?.u32()?,
        context_tokens: runtime.required("maxTotalPositions")?.u32()?,
        text: match runtime.optional("text") {
            Some(field) => text_urls(field.object()?)?,
            None => TextUrls::default(),
        },
        self_test: runtime.optional("selfTest").map(self_test).transpose()?,
        source: root.optional("source").map(source).transpose()?,
    };
    runtime.finish()?;
    root.finish()?;
    Ok(Manifest {
        format,
        spec,
        tuning,
    })
}

fn format(field: Field) -> Result<Format, ManifestError> {
    let found = field.text()?;
    Format::parse(&found).ok_or(ManifestError::UnknownFormat {
        found,
        known: Format::V1.word(),
    })
}

fn shape(mut fields: Object) -> Result<Shape, ManifestError> {
    let shape = Shape {
        layers: each(fields.required("layerTypes")?, Field::word)?,
        hidden: fields.required("hidden")?.u32()?,
        ffn: fields.required("ffn")?.u32()?,
        vocab: fields.required("vocab")?.u32()?,
        heads: fields.required("heads")?.u32()?,
        kv_heads: fields.required("kvHeads")?.u32()?,
        head_dim: fields.required("headDim")?.u32()?,
        conv_window: fields.required("convCache")?.u32()?,
        norm_eps: match fields.optional("normEps") {
            Some(field) => field.positive_f32()?,
            None => DEFAULT_NORM_EPS,
        },
        rope_theta: match fields.optional("ropeTheta") {
            Some(field) => field.positive_f32()?,
            None => DEFAULT_ROPE_THETA,
        },
        conv_bias: match fields.optional("convBias") {
            Some(field) => field.bool()?,
            None => false,
        },
        tied_embedding: match fields.optional("tiedEmbedding") {
            Some(field) => field.bool()?,
            None => true,
        },
        scale_type: match fields.optional("scaleType") {
            Some(field) => field.word()?,
            None => ScaleType::F32,
        },
    };
    only(fields.required("quantBits")?, CODE_BITS)?;
    only(fields.required("quantBlock")?, BLOCK)?;
    fields.finish()?;
    Ok(shape)
}

/// Refuses every value but one.
fn only(field: Field, supported: u32) -> Result<(), ManifestError> {
    let path = field.path().to_owned();
    let (value, supported) = (field.u64()?, u64::from(supported));
    if value == supported {
        return Ok(());
    }
    Err(ManifestError::FieldUnsupported {
        path,
        value,
        supported,
    })
}

fn section(field: Field) -> Result<Section, ManifestError> {
    let mut fields = field.object()?;
    let section = Section {
        name: fields.required("name")?.text()?,
        offset_bytes: fields.required("offset")?.u64()?,
        bytes: fields.required("bytes")?.u64()?,
        sha256: fields.optional("sha256").map(digest).transpose()?,
    };
    fields.finish()?;
    Ok(section)
}

fn digest(field: Field) -> Result<[u8; 32], ManifestError> {
    let path = field.path().to_owned();
    let found = field.text()?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let digits: Option<Vec<u32>> = found.bytes().map(digit).collect();
    match digits {
        Some(digits) if digits.len() == 64 => {
            let mut bytes = [0; 32];
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = (pair[0] << 4 | pair[1]) as u8;
            }
            Ok(bytes)
        }
        _ => Err(ManifestError::Digest { path, found }),
    }
}

fn text_urls(mut fields: Object) -> Result<TextUrls, ManifestError> {
    let mut url = |name| fields.optional(name).map(Field::text).transpose();
    let urls = TextUrls {
        tokenizer: url("tokenizer")?,
        tokenizer_config: url("tokenizerConfig")?,
        chat_template: url("chatTemplate")?,
        generation_config: url("generationConfig")?,
    };
    fields.finish()?;
    Ok(urls)
}

fn self_test(field: Field) -> Result<SelfTest, ManifestError> {
    let mut fields = field.object()?;
    let test = SelfTest {
        prompt_ids: each(fields.required("promptIds")?, Field::u32)?,
        continuation_ids: each(fields.required("continuationIds")?, Field::u32)?,
    };
    fields.finish()?;
    Ok(test)
}

fn source(field: Field) -> Result<Source, ManifestError> {
    let mut fields = field.object()?;
    let mut text = |name| fields.optional(name).map(Field::text).transpose();
    let source = Source {
        repository: text("repository")?,
        revision: text("revision")?,
        licence: text("licence")?,
        quantiser: text("quantiser")?,
    };
    fields.finish()?;
    Ok(source)
}

/// A manifest that names its format may leave the tuning out, but only as a whole: half a tuning
/// is more likely a mistake than a wish.
fn tuning(
    format: Option<Format>,
    shape: &Shape,
    root: &mut Object,
    runtime: &mut Object,
) -> Result<Tuning, ManifestError> {
    let untuned = !root.has("candidate") && !TUNING_FIELDS.iter().any(|name| runtime.has(name));
    if untuned && format.is_some() {
        return Ok(Tuning::default_for(shape));
    }
    let mut candidate = root.required("candidate")?.object()?;
    let tuning = Tuning {
        name: candidate.required("key")?.text()?,
        tokens_per_pass: runtime.required("maxQueries")?.u32()?,
        plan_context_tokens: runtime.required("planPosition")?.u32()?,
        choice_partials: runtime.required("samplePartials")?.u32()?,
        matvecs: matvecs(candidate.required("matvec")?)?,
        fallback_geometries: each(runtime.required("knee")?, fallback_geometry)?,
        fallback_dequantise: runtime.required("dequantVariant")?.word()?,
        attention_split: candidate.required("flash")?.bool()?,
        attention_reduction: candidate.required("flashMode")?.word()?,
        attention_online_softmax: candidate.required("flashOnline")?.bool()?,
        attention_splits: candidate
            .optional("flashBlocks")
            .map(Field::u32)
            .transpose()?,
        attention_splits_by_context: each(runtime.required("flashOptima")?, context_splits)?,
        mlp_reduction: candidate.required("mlpMode")?.word()?,
        mlp_slices: candidate.required("mlpSlices")?.u32()?,
        mlp_workgroup: candidate.required("mlpWorkgroup")?.u32()?,
        mlp_paired_rows: candidate.required("mlpPair")?.bool()?,
        mlp_dot_f16: candidate.required("mlpHalfDot")?.word()?,
        mlp_product_f16: candidate.required("mlpHalfProduct")?.word()?,
        fold_lanes: candidate.required("foldLanes")?.u32()?,
        fold_reduction: by_subgroup(candidate.required("foldSubgroup")?)?,
        norm_reduction: by_subgroup(candidate.required("normSubgroup")?)?,
        fuse_conv: candidate.required("convFuse")?.bool()?,
        plain_plan: candidate.required("unfused")?.bool()?,
        tile_padding_elems: candidate.required("padding")?.u32()?,
        extra_features: each(runtime.required("extraFeatures")?, Field::word)?,
        power_preference: runtime.required("powerPreference")?.word()?,
        expected_subgroup_size: runtime.required("expectedSubgroupSize")?.u32()?,
    };
    candidate.finish()?;
    Ok(tuning)
}

fn by_subgroup(field: Field) -> Result<Reduction, ManifestError> {
    Ok(if field.bool()? {
        Reduction::Subgroup
    } else {
        Reduction::Workgroup
    })
}

fn fallback_geometry(field: Field) -> Result<(Matrix, Geometry), ManifestError> {
    let mut fields = field.object()?;
    let entry = (
        fields.required("shape")?.word()?,
        geometry(fields.required("geometry")?)?,
    );
    fields.finish()?;
    Ok(entry)
}

fn matvecs(field: Field) -> Result<BTreeMap<Matrix, Matvec>, ManifestError> {
    let mut matvecs = BTreeMap::new();
    for (name, field) in field.object()?.into_fields() {
        let matrix = Matrix::parse(&name).ok_or_else(|| ManifestError::UnknownWord {
            path: field.path().to_owned(),
            found: name,
            known: Matrix::vocabulary(),
        })?;
        let mut fields = field.object()?;
        let matvec = Matvec {
            geometry: geometry(fields.required("geometry")?)?,
            dequantise: fields.required("variant")?.word()?,
        };
        fields.finish()?;
        matvecs.insert(matrix, matvec);
    }
    Ok(matvecs)
}

fn geometry(field: Field) -> Result<Geometry, ManifestError> {
    let mut fields = field.object()?;
    let geometry = Geometry {
        workgroup: fields.required("workgroupSize")?.u32()?,
        subgroup_size: fields.required("subgroupSize")?.u32()?,
        rows_per_subgroup: fields.required("rowsPerSubgroup")?.u32()?,
        subgroups_per_row: fields.required("subgroupsPerRow")?.u32()?,
    };
    fields.finish()?;
    Ok(geometry)
}

fn context_splits(field: Field) -> Result<ContextSplits, ManifestError> {
    let mut fields = field.object()?;
    let entry = ContextSplits {
        context_tokens: fields.required("positions")?.u32()?,
        splits: fields.required("blocks")?.u32()?,
    };
    fields.finish()?;
    Ok(entry)
}

/// Reads every entry of a list.
fn each<T>(
    field: Field,
    read: impl FnMut(Field) -> Result<T, ManifestError>,
) -> Result<Vec<T>, ManifestError> {
    field.list()?.into_iter().map(read).collect()
}
