//! Text to token ids and back, for one model.
//!
//! In go the text files that stand beside a model ([`TextFiles`]: tokenizer, its configuration,
//! chat template, generation defaults). Out come token ids for a text or a [`Chat`], text for
//! token ids at once ([`Text::detokenize`]) or one by one ([`TextStream`]), and the ids that end
//! a text. The main type is [`Text`]; after [`Text::new`] it does not change.
//!
//! The files come from the network: they are bounded in size ([`TextFile::limit_bytes`]), and a
//! chat template is bounded in work and memory. Reading and fetching is the caller's part, the
//! model's forward pass lies between the ids of [`Text::tokenize`] and those of [`TextStream`];
//! this crate knows neither.
//!
//! ```no_run
//! use monarch_text::{Chat, Message, Text, TextFiles, TextStream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let next_id = |_: &[u32]| 0;
//! let text = Text::new(&TextFiles {
//!     tokenizer: &std::fs::read_to_string("tokenizer.json")?,
//!     tokenizer_config: Some(&std::fs::read_to_string("tokenizer_config.json")?),
//!     chat_template: None,
//!     generation_config: Some(&std::fs::read_to_string("generation_config.json")?),
//! })?;
//!
//! let mut ids = text.tokenize_chat(&Chat::new(vec![Message::new("user", "Hello")]))?;
//! let mut stream = TextStream::new(&["\nUser:".to_owned()], false)?;
//! loop {
//!     let id = next_id(&ids);
//!     if text.end_ids().contains(&id) {
//!         break;
//!     }
//!     ids.push(id);
//!     let piece = stream.push(&text, id)?;
//!     print!("{}", piece.text);
//!     if piece.stopped {
//!         break;
//!     }
//! }
//! println!("{}", stream.finish());
//! # Ok(()) }
//! ```

mod chat;
mod config;
mod date;
mod error;
mod json;
mod stream;
mod template;
mod text;
mod utf8;
mod vocabulary;

pub use chat::{Chat, Message};
pub use config::GenerationDefaults;
pub use date::DateTime;
pub use error::{TextError, TextFile};
pub use stream::{Piece, TextStream};
pub use text::{Text, TextFiles};
