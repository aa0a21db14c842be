//! A tensor: its bytes where they lie, and its bytes once loaded.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::dtype::Dtype;
use crate::element::{self, Element};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::pool::Pool;
use crate::shard::Shard;
use crate::sys;
use crate::tensor_info::TensorInfo;

/// A range of a shard's mapping, which lives as long as this does.
#[derive(Clone)]
struct Mapped {
    shard: Arc<Shard>,
    range: Range<u64>,
    /// Where the file's descriptors are, if its pages are to be given back with this.
    behind: Option<Arc<Pool>>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Some(pool) = &self.behind else { return };
        if let (Ok(map), Ok(file)) = (self.shard.map(), pool.file(&self.shard)) {
            let Range { start, end } = self.range;
            // A page that is in a page table stays in the page cache. The first one is shared with the tensor
            // before, and belongs to it no more than to this one.
            map.let_go(start - start % sys::page_bytes()..end);
            sys::drop_cached(&file, start..end);
        }
    }
}

impl Mapped {
    fn new(shard: &Arc<Shard>, range: Range<u64>, behind: Option<&Arc<Pool>>) -> Result<Self> {
        let map = shard.map()?;
        if map.get(range.clone()).is_none() {
            return Err(Error::io(
                &shard.path,
                format!("address bytes {}..{} of the mapping", range.start, range.end),
                std::io::ErrorKind::FileTooLarge.into(),
            ));
        }
        Ok(Self { shard: Arc::clone(shard), range, behind: behind.map(Arc::clone) })
    }

    fn as_slice(&self) -> &[u8] {
        // Both were seen to be there when this was made.
        self.shard.map().ok().and_then(|map| map.get(self.range.clone())).unwrap_or_default()
    }
}

/// A tensor's bytes where they lie in the mapped file: no copy is made, and nothing is read until they are
/// touched.
///
/// It keeps the mapping alive, also after the model is dropped or the shard released. What touching it can
/// come to when someone changes the file is told on [`ShardedModel`](crate::ShardedModel).
#[derive(Clone)]
pub struct TensorView {
    info: Arc<TensorInfo>,
    bytes: Mapped,
}

/// A tensor that has been loaded: into memory of its own, or as pages of the mapped file that were brought
/// in.
///
/// It keeps what it needs alive, also after the model is dropped or the shard released.
pub struct Tensor {
    info: Arc<TensorInfo>,
    bytes: Bytes,
}

enum Bytes {
    Mapped(Mapped),
    /// A range of memory that small neighbours share.
    Owned(Arc<Memory>, Range<usize>),
}

impl TensorView {
    pub(crate) fn new(info: TensorInfo, shard: &Arc<Shard>) -> Result<Self> {
        let bytes = Mapped::new(shard, info.range.clone(), None)?;
        Ok(Self { info: Arc::new(info), bytes })
    }

    /// The tensor's bytes: little-endian elements, the last dimension running fastest.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

impl Tensor {
    /// With `behind`, its pages are given back when it is dropped.
    pub(crate) fn mapped(
        info: Arc<TensorInfo>,
        shard: &Arc<Shard>,
        behind: Option<&Arc<Pool>>,
    ) -> Result<Self> {
        let bytes = Bytes::Mapped(Mapped::new(shard, info.range.clone(), behind)?);
        Ok(Self { info, bytes })
    }

    pub(crate) fn owned(info: Arc<TensorInfo>, memory: Arc<Memory>, range: Range<usize>) -> Self {
        Self { info, bytes: Bytes::Owned(memory, range) }
    }

    /// The tensor's bytes: little-endian elements, the last dimension running fastest.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapped) => mapped.as_slice(),
            // It was seen to be there when the tensor was made.
            Bytes::Owned(memory, range) => memory.as_slice().get(range.clone()).unwrap_or_default(),
        }
    }

    /// Whether the bytes lie in the mapped file; otherwise in memory of the tensor's own.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }
}

/// Typed access is the same for a view and for a loaded tensor.
macro_rules! typed_access {
    ($($type:ident),+) => {$(
        impl fmt::Debug for $type {
            /// What it is, without its bytes.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($type)).field(&self.info).finish()
            }
        }

        impl $type {
            /// What the header tells of the tensor.
            pub fn info(&self) -> &TensorInfo {
                &self.info
            }

            /// The name.
            pub fn name(&self) -> &str {
                &self.info.name
            }

            /// The type of the elements.
            pub fn dtype(&self) -> &Dtype {
                &self.info.dtype
            }

            /// The length of each dimension, outermost first.
            pub fn shape(&self) -> &[u64] {
                &self.info.shape
            }

            /// The elements as a slice, without a copy.
            ///
            /// # Errors
            /// [`Error::DtypeMismatch`] when the elements are not of the type `T`; [`Error::Misaligned`] when
            /// they do not lie at an address that `T` needs, as happens to mapped tensors (memory of a
            /// tensor's own is always aligned); [`Error::BigEndian`] on a machine of that byte order.
            /// [`Self::to_vec`] helps with the last two.
            pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
                element::as_slice(&self.info, self.bytes())
            }

            /// The elements copied into a `Vec`, wherever they lie and whatever the machine's byte order.
            ///
            /// # Errors
            /// [`Error::DtypeMismatch`] when the elements are not of the type `T`.
            pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
                element::to_vec(&self.info, self.bytes())
            }

            /// The elements of a [`Dtype::Bool`] tensor; all of them are looked at.
            ///
            /// # Errors
            /// [`Error::DtypeMismatch`] for any other type; [`Error::NotBool`] when a byte is neither 0 nor
            /// 1.
            pub fn as_bools(&self) -> Result<&[bool]> {
                element::as_bools(&self.info, self.bytes())
            }
        }
    )+};
}

typed_access!(TensorView, Tensor);
