//! Tensors as they are done.

use std::fmt;
use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::load::{Job, Keeps, LoadOptions};
use crate::read::Purpose;
use crate::report::LoadReport;
use crate::select::Selection;
use crate::tensor::Tensor;
use crate::threads::{drive, is_ours};

/// The tensors of a selection in the order in which they are done.
///
/// Workers stay at most 256 MiB, or one longer tensor, ahead of what has been taken, less where memory is short, and as
/// far as [`LoadOptions::memory_limit`] lets them if that is given. A tensor comes only
/// after its file was shown to be still the one that was checked. An error is the last item, after the
/// tensors that were done before. Dropping the stream cancels what is left and waits for the reads that are
/// under way, save on a thread that this library started, of whatever load, as in a progress function: there nothing
/// is waited for, and the reads end soon after.
///
/// ```
/// # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
/// # let model = weightmap::ShardedModel::open(checkpoint.path())?;
/// let mut stream = model.select().glob("model.layers.*")?.stream()?;
/// let mut bytes = 0;
/// // By reference: what it cost is asked of the stream afterwards.
/// for tensor in stream.by_ref() {
///     bytes += tensor?.bytes().len() as u64;
/// }
/// assert_eq!(stream.report().map(|report| report.requested_bytes), Some(bytes));
/// # Ok::<(), weightmap::Error>(())
/// ```
pub struct TensorStream {
    running: Option<Running>,
    report: Option<LoadReport>,
}

/// A load that is under way.
struct Running {
    job: Arc<Job>,
    tensors: Receiver<Tensor>,
    driver: JoinHandle<Result<LoadReport>>,
    /// The process that the driver is a thread of.
    process: u32,
}

impl Selection {
    /// Loads the selected tensors in parallel and gives each as soon as it is done, within bounded memory.
    ///
    /// # Errors
    /// [`Error::EmptySelection`](crate::Error::EmptySelection); all others come as items of the stream, and
    /// are those of [`Selection::load`].
    pub fn stream(&self) -> Result<TensorStream> {
        self.stream_with(&LoadOptions::default())
    }

    /// As [`Selection::stream`], with options.
    ///
    /// # Errors
    /// Those of [`Selection::stream`].
    pub fn stream_with(&self, options: &LoadOptions) -> Result<TensorStream> {
        let job = Arc::new(Job::new(self, options, Purpose::Tensors)?);
        let (sender, tensors) = mpsc::channel();
        let running = Arc::clone(&job);
        let driver = drive(move || {
            running.run(Keeps::Untaken, |_, tensor| {
                // Nobody takes it if the stream was dropped, which has cancelled the job.
                let _ = sender.send(tensor);
            })
        })?;
        let running = Running { job, tensors, driver, process: process::id() };
        Ok(TensorStream { running: Some(running), report: None })
    }
}

impl Running {
    /// Whether this process is a fork of the one that it runs in. Then its threads are not here, and may have left locks
    /// behind that nobody opens: it is not to be touched, nor dropped.
    fn is_elsewhere(&self) -> bool {
        self.process != process::id()
    }
}

impl fmt::Debug for TensorStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorStream").field("report", &self.report).finish_non_exhaustive()
    }
}

impl TensorStream {
    /// What the load cost; there once the stream has ended without an error.
    pub fn report(&self) -> Option<&LoadReport> {
        self.report.as_ref()
    }

    /// The driver is done when it has dropped its end of the channel.
    fn finish(&mut self) -> Option<Result<Tensor>> {
        match self.running.take()?.driver.join() {
            Ok(Ok(report)) => {
                self.report = Some(report);
                None
            }
            Ok(Err(error)) => Some(Err(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Iterator for TensorStream {
    type Item = Result<Tensor>;

    fn next(&mut self) -> Option<Self::Item> {
        let running = self.running.as_ref()?;
        if running.is_elsewhere() {
            mem::forget(self.running.take());
            return Some(Err(Error::Forked));
        }
        let Ok(tensor) = running.tensors.recv() else { return self.finish() };
        let bytes = tensor.info().len_bytes();
        // First, since the gate lets others take memory at once.
        if !tensor.is_mapped() {
            running.job.meter.let_go(bytes);
        }
        running.job.gate.leave(bytes);
        Some(Ok(tensor))
    }
}

impl Drop for TensorStream {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if running.is_elsewhere() {
            return mem::forget(running);
        }
        running.job.cancel();
        // In a progress function this is the driver, or a worker that it waits for.
        if !is_ours() {
            // Its result is of no interest any more.
            let _ = running.driver.join();
        }
    }
}
