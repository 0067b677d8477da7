//! Logits in, one token id out.
//!
//! [`choose`] is the whole decision: greedy when the [`Policy`]'s temperature is 0, otherwise a draw from
//! `softmax(logits / temperature)`. The draw adds [`gumbel`] noise to the scaled logits and takes the largest
//! (the Gumbel-max trick), so it needs no sorted list and no running sum, and a GPU can do it as an arg-max in two
//! stages. The noise is a hash of seed, position and token id: the same seed gives the same text whatever the
//! plan, the batch or the device, up to scores closer than rounding.
//!
//! The `argmax_partial` and `argmax_final` kernels do the same on the GPU; the engine and the `monarch` program call
//! this crate. It depends on no other crate of the project.
//!
//! ```
//! use monarch_sample::{Policy, choose};
//!
//! let logits = [0.1, 2.5, -1.0, 2.5];
//! assert_eq!(choose(&logits, &Policy::GREEDY, 7), 1); // the lower of the two equal ids
//!
//! let policy = Policy::new(0.7, 42)?;
//! let id = choose(&logits, &policy, 7);
//! assert_eq!(id, choose(&logits, &policy, 7)); // same seed and position, same choice
//! # Ok::<(), monarch_sample::PolicyError>(())
//! ```

mod policy;
mod rng;

pub use policy::{Policy, PolicyError, choose};
pub use rng::gumbel;
