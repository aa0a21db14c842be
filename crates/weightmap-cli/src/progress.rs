//! How far reading is, told while it runs.

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
    with_bar(shown, |bar| load(&options.progress(move |done, of| bar.tell(done, of))))
}

/// Runs something that tells a bar how far it is.
pub(crate) fn with_bar<T>(shown: bool, run: impl FnOnce(Bar) -> Result<T>) -> Result<T> {
    let bar = if shown { bar()? } else { ProgressBar::hidden() };
    let result = run(Bar(bar.clone()));
    bar.finish_and_clear();
    result
}

/// A bar that is drawn if it is shown.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// So many bytes are done of so many.
    pub(crate) fn tell(&self, done: u64, of: u64) {
        // To set the length draws the bar, for which no worker should wait but the first.
        if self.0.length() != Some(of) {
            self.0.set_length(of);
        }
        self.0.set_position(done);
    }
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
