//! Progress bars on stderr, for a person at a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total_bytes`; invisible when stderr is not a terminal.
pub(crate) fn bytes(label: &'static str, total_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{prefix:>10} [{wide_bar}] {binary_bytes}/{binary_total_bytes} {eta}",
    )
    .expect("the template is a constant")
    .progress_chars("=> ");
    // The default draw target is stderr, and hides itself when that is not a terminal.
    ProgressBar::new(total_bytes)
        .with_style(style)
        .with_prefix(label)
}

/// A bar over `total` tokens; invisible when stderr is not a terminal.
pub(crate) fn tokens(label: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} [{wide_bar}] {pos}/{len} tokens {eta}")
        .expect("the template is a constant")
        .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_prefix(label)
}
