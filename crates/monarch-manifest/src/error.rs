//! Why a manifest was refused.

/// Why a manifest was refused. Paths are those of the file: `runtime.shape.layerTypes[3]`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Longer than any manifest of a model within the limits.
    #[error("manifest is {text_bytes} bytes long, the limit is {limit_bytes}")]
    TextTooLong {
        /// Length of the text.
        text_bytes: usize,
        /// See [`TEXT_LIMIT_BYTES`](crate::TEXT_LIMIT_BYTES).
        limit_bytes: usize,
    },
    /// Not JSON, or cut off.
    #[error("manifest is not JSON: line {line}, column {column}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What the JSON reader said.
        source: serde_json::Error,
    },
    /// A schema version that this build does not read.
    #[error("format {found:?} is not known here, only {known:?} is")]
    UnknownFormat {
        /// As written.
        found: String,
        /// What this build reads.
        known: &'static str,
    },

    /// A field that has no default is missing.
    #[error("{path} is missing")]
    MissingField {
        /// Where it belongs.
        path: String,
    },
    /// A field that the schema does not have.
    #[error("{path} is not a field of this schema")]
    UnknownField {
        /// Where it is.
        path: String,
    },
    /// A field that is written twice in one object.
    #[error("{path} is written twice")]
    DuplicateField {
        /// Where it is.
        path: String,
    },
    /// A value of the wrong JSON type.
    #[error("{path}: expected {expected}, found {found}")]
    FieldType {
        /// Where it is.
        path: String,
        /// Type that belongs there.
        expected: &'static str,
        /// Type and, when short, value that is there.
        found: String,
    },
    /// A number outside its range.
    #[error("{path}: {value} is outside {min}..={max}")]
    FieldRange {
        /// Where it is.
        path: String,
        /// As written.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// A number that has to be a multiple of another one.
    #[error("{path}: {value} is not a multiple of {multiple_of}")]
    FieldMultiple {
        /// Where it is.
        path: String,
        /// As written.
        value: u64,
        /// Its divisor.
        multiple_of: u64,
    },
    /// A number that has to be a power of two.
    #[error("{path}: {value} is not a power of two")]
    FieldPowerOfTwo {
        /// Where it is.
        path: String,
        /// As written.
        value: u64,
    },
    /// A number that has to be positive and finite.
    #[error("{path}: {value:e} is not a positive, finite 32-bit float")]
    FieldPositive {
        /// Where it is.
        path: String,
        /// As written.
        value: f64,
    },
    /// A number of which this engine supports one value only.
    #[error("{path}: {value} is not supported, only {supported} is")]
    FieldUnsupported {
        /// Where it is.
        path: String,
        /// As written.
        value: u64,
        /// What is supported.
        supported: u64,
    },
    /// A word that is not in the field's vocabulary.
    #[error("{path}: {found:?} is not one of {known}")]
    UnknownWord {
        /// Where it is.
        path: String,
        /// As written.
        found: String,
        /// The vocabulary, separated by commas.
        known: String,
    },
    /// A text that may not be empty.
    #[error("{path} is empty")]
    EmptyText {
        /// Where it is.
        path: String,
    },
    /// A list that is too short or too long.
    #[error("{path} has {entries} entries, needs {min} to {max}")]
    ListLength {
        /// Where it is.
        path: String,
        /// Its length.
        entries: usize,
        /// Shortest allowed.
        min: usize,
        /// Longest allowed.
        max: usize,
    },
    /// A list that names the same thing twice.
    #[error("{path}: {value} is listed twice")]
    DuplicateEntry {
        /// Where the second one is.
        path: String,
        /// What is listed twice.
        value: String,
    },
    /// Split counts that are not listed by increasing context length.
    #[error("{path}: {context_tokens} tokens do not come after the {previous_tokens} before them")]
    ContextOrder {
        /// Where it is.
        path: String,
        /// As written.
        context_tokens: u32,
        /// The entry before.
        previous_tokens: u32,
    },
    /// A digest that is not 64 hexadecimal digits.
    #[error("{path}: {found:?} is not a SHA-256 digest of 64 hexadecimal digits")]
    Digest {
        /// Where it is.
        path: String,
        /// As written.
        found: String,
    },
    /// A self-test token that the vocabulary does not have.
    #[error("{path}: token id {id} is outside the vocabulary of {vocab}")]
    TokenId {
        /// Where it is.
        path: String,
        /// As written.
        id: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },

    /// A self-test that does not fit into one conversation.
    #[error(
        "runtime.selfTest: {prompt_ids} promptIds and {continuation_ids} continuationIds are more \
         than maxTotalPositions {context_tokens}"
    )]
    SelfTestTooLong {
        /// Length of the prompt.
        prompt_ids: usize,
        /// Length of the continuation.
        continuation_ids: usize,
        /// Limit on both together.
        context_tokens: u32,
    },

    /// Query heads that cannot be shared out among the key and value heads.
    #[error("runtime.shape: {heads} heads are not a multiple of {kv_heads} kvHeads")]
    HeadGroups {
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
    },
    /// A conversation longer than the KV cache.
    #[error(
        "runtime.maxTotalPositions: {context_tokens} tokens do not fit into \
         maxPositions {rope_table_positions}"
    )]
    ContextTooLong {
        /// Limit on prompt and output.
        context_tokens: u32,
        /// Capacity.
        rope_table_positions: u32,
    },

    /// A section that this shape has no use for.
    #[error("section {section}: no part of a model of this shape has that name")]
    UnknownSection {
        /// As written.
        section: String,
    },
    /// A section that this shape cannot do without.
    #[error("section {section}: missing, shape {shape} needs {needed_bytes} bytes of it")]
    MissingSection {
        /// Name it should have.
        section: String,
        /// The sizes behind it.
        shape: String,
        /// Size it should have.
        needed_bytes: u64,
    },
    /// One of two sections that are of use only together.
    #[error("section {section}: listed without its partner {partner}")]
    SectionPartner {
        /// The listed one.
        section: String,
        /// The missing one.
        partner: String,
    },
    /// A name that is listed twice.
    #[error("section {section}: listed twice, as number {first} and number {second}")]
    DuplicateSection {
        /// As written.
        section: String,
        /// Index of the first, from 0.
        first: usize,
        /// Index of the second, from 0.
        second: usize,
    },
    /// A size that does not follow from the shape.
    #[error(
        "section {section}: manifest says {listed_bytes} bytes, shape {shape} needs {needed_bytes}"
    )]
    SectionSize {
        /// Name.
        section: String,
        /// The sizes behind it.
        shape: String,
        /// As written.
        listed_bytes: u64,
        /// As derived.
        needed_bytes: u64,
    },
    /// A rotary table that is not a whole number of positions, or longer than needed.
    #[error(
        "section {section}: manifest says {listed_bytes} bytes, a table has {row_bytes} bytes for \
         each of 1 to {max_positions} positions"
    )]
    RopeTableSize {
        /// Name.
        section: String,
        /// As written.
        listed_bytes: u64,
        /// Bytes per position.
        row_bytes: u64,
        /// Positions that the model is run with.
        max_positions: u32,
    },
    /// An offset that no GPU copy could start from.
    #[error("section {section}: offset {offset_bytes} is not a multiple of {multiple_of}")]
    SectionAlignment {
        /// Name.
        section: String,
        /// As written.
        offset_bytes: u64,
        /// Alignment.
        multiple_of: u64,
    },
    /// A section that ends after the file.
    #[error(
        "section {section}: offset {offset_bytes} and {bytes} bytes go past the \
         {weight_bytes} bytes of the weights"
    )]
    SectionPastEnd {
        /// Name.
        section: String,
        /// As written.
        offset_bytes: u64,
        /// As written.
        bytes: u64,
        /// Size of the file.
        weight_bytes: u64,
    },
    /// Two sections that share some of their bytes.
    #[error(
        "section {section}: offset {offset_bytes} lies inside section {other}, \
         which ends at {other_end_bytes}"
    )]
    SectionOverlap {
        /// The later one.
        section: String,
        /// Where it begins.
        offset_bytes: u64,
        /// The earlier one.
        other: String,
        /// Where the earlier one ends.
        other_end_bytes: u64,
    },
    /// Bytes in front of a section that nothing names and alignment does not explain.
    #[error(
        "section {section}: begins at {offset_bytes}, but the one before it ends at \
         {previous_end_bytes}"
    )]
    SectionGap {
        /// The one after the gap.
        section: String,
        /// Where it begins.
        offset_bytes: u64,
        /// Where the gap begins.
        previous_end_bytes: u64,
    },
    /// Bytes at the end of the file that nothing names and alignment does not explain.
    #[error("runtime.weightBytes: {weight_bytes} bytes, but the last section ends at {end_bytes}")]
    WeightsTail {
        /// As written.
        weight_bytes: u64,
        /// End of the last section.
        end_bytes: u64,
    },
    /// A tied model whose head and embedding are different bytes.
    #[error(
        "section {section}: offset {offset_bytes}, but the embedding is tied and {other} has \
         offset {other_offset_bytes}"
    )]
    TiedSections {
        /// One of the head.
        section: String,
        /// As written.
        offset_bytes: u64,
        /// Its counterpart of the embedding.
        other: String,
        /// As written.
        other_offset_bytes: u64,
    },
    /// Two names for the same bytes with different digests.
    #[error("section {section}: same bytes as section {other}, but another sha256")]
    AliasDigest {
        /// The later one.
        section: String,
        /// The earlier one.
        other: String,
    },
}
