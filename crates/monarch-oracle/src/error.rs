//! What can go wrong between a weight source and a logit.

use std::error::Error;

/// Why weights could not be read or a pass could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// The weight source failed.
    #[error("{tensor}: cannot be read")]
    Read {
        /// The tensor's role and layer, as in `L3 AttnQkv`.
        tensor: String,
        /// The source's own error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The weight source gave another number of elements than the shape has.
    #[error("{tensor}: the source gave {given_elems} elements, the shape needs {needed_elems}")]
    Length {
        /// The tensor's role and layer, as in `L3 AttnQkv`.
        tensor: String,
        /// Elements that came.
        given_elems: usize,
        /// Elements that the shape asks for.
        needed_elems: usize,
    },
    /// The shape promises a bias that the source does not have.
    #[error("{tensor}: the shape has conv biases, the source has none here")]
    MissingBias {
        /// The tensor's role and layer, as in `L0 ConvInProj bias`.
        tensor: String,
    },
    /// The query heads cannot be shared out evenly among the key and value heads.
    #[error("{heads} heads cannot share {kv_heads} key and value heads evenly")]
    Heads {
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
    },
    /// A pass over no token at all.
    #[error("no token ids: a pass needs at least one")]
    NoTokens,
    /// A token id outside the vocabulary.
    #[error("token id {id} at index {index}: the vocabulary has ids 0 to {}", vocab - 1)]
    TokenId {
        /// Where it stands among the ids of this pass.
        index: usize,
        /// The id.
        id: u32,
        /// Ids that the model knows.
        vocab: u32,
    },
}
