//! The bytes of a model, section by section.
//!
//! In go the sections of a manifest ([`monarch_manifest::Section`]) and a [`Source`]: a local
//! folder, a web server seen from a native program, or the network as a web page sees it. Out come
//! the sections' bytes, in pieces, in file order, verified, at a [`SectionSink`]. The way there is
//! [`load_sections`]; [`plan_requests`] decides which byte ranges are asked for.
//!
//! No buffer here grows with the file or with a section. Before this crate comes `monarch-manifest`,
//! which says what a section is; after it comes whoever puts the bytes on a device.
//!
//! ```
//! # #[cfg(not(target_arch = "wasm32"))] {
//! use monarch_weights::{Cancel, FolderSource, SectionSink, Source, load_sections};
//!
//! /// Collects sections; a real sink writes every chunk to a GPU buffer and forgets it.
//! struct Collect(Vec<Vec<u8>>);
//!
//! impl SectionSink for Collect {
//!     fn chunk(&mut self, section: usize, offset_bytes: u64, bytes: &[u8]) {
//!         assert_eq!(self.0[section].len() as u64, offset_bytes);
//!         self.0[section].extend_from_slice(bytes);
//!     }
//!     fn complete(&mut self, _section: usize) {}
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("weights.bin"), b"codesscales")?;
//! let section = |name: &str, offset_bytes, bytes| monarch_manifest::Section {
//!     name: name.to_owned(),
//!     offset_bytes,
//!     bytes,
//!     sha256: None,
//! };
//! let codes = section("head.quant", 0, 5);
//! let scales = section("head.scales", 5, 6);
//! let tied_codes = section("embed.quant", 0, 5);
//! let wanted = [&codes, &scales, &tied_codes];
//!
//! let source = FolderSource::new(folder);
//! let url = source.resolve("manifest.json", "/weights.bin?v=2")?;
//! let mut sink = Collect(vec![Vec::new(); wanted.len()]);
//! pollster::block_on(load_sections(
//!     &source,
//!     &url,
//!     &wanted,
//!     &mut sink,
//!     &mut |loaded| assert_eq!(loaded.total_bytes, 11),
//!     &Cancel::new(),
//! ))?;
//! assert_eq!(sink.0, [&b"codes"[..], b"scales", b"codes"]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cancel;
mod error;
mod http;
mod load;
mod plan;
mod source;

pub use cancel::{Cancel, CancelRegistration};
pub use error::WeightsError;
pub use load::{Loaded, SectionSink, load_sections};
pub use plan::{Part, Request, SHARED_GAP_BYTES, SHARED_REQUEST_BYTES, plan_requests};
#[cfg(not(target_arch = "wasm32"))]
pub use source::folder::FolderSource;
#[cfg(not(target_arch = "wasm32"))]
pub use source::http::HttpSource;
#[cfg(target_arch = "wasm32")]
pub use source::web::WebSource;
pub use source::{Served, Source};
