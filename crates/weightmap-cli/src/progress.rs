//! How far a load is, told while it runs.

use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use weightmap::LoadOptions;

/// Runs a load with these options and, if it is to be `shown`, with a bar on stderr, where that is a terminal.
pub(crate) fn with_progress<T>(
    shown: bool,
    options: LoadOptions,
    load: impl FnOnce(&LoadOptions) -> Result<T>,
) -> Result<T> {
    let bar = if shown { bar()? } else { ProgressBar::hidden() };
    let drawn = bar.clone();
    let loaded = load(&options.progress(move |done, of| {
        // To set the length draws the bar, for which no worker should wait but the first.
        if drawn.length() != Some(of) {
            drawn.set_length(of);
        }
        drawn.set_position(done);
    }));
    bar.finish_and_clear();
    loaded
}

/// A bar on stderr, hidden where that is no terminal. A thread of its own draws it, outside the time of the
/// workers.
fn bar() -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{wide_bar} {binary_bytes}/{binary_total_bytes}")?;
    let bar = ProgressBar::no_length().with_style(style);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    Ok(bar)
}
