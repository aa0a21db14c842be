//! Memory of our own for a tensor's bytes.

use std::io;

use bytemuck::allocation::try_zeroed_slice_box;

/// Bytes at an address that suits every element type: a multiple of 16.
///
/// Fresh memory comes zeroed from the system, page by page as it is written, so that allocating it costs
/// nothing twice.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    words: Box<[u128]>,
    bytes: usize,
}

impl Buffer {
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when the system gives no memory of this size.
    pub(crate) fn zeroed(bytes: u64) -> io::Result<Self> {
        let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = usize::try_from(bytes).map_err(|_| refused())?;
        let words = try_zeroed_slice_box(bytes.div_ceil(size_of::<u128>())).map_err(|()| refused())?;
        Ok(Self { words, bytes })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words).get(..self.bytes).unwrap_or_default()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words).get_mut(..self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_bytes_asked_for_at_an_aligned_address() {
        for bytes in [0, 1, 15, 16, 17, 4097] {
            let mut buffer = Buffer::zeroed(bytes).unwrap();
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
            buffer.as_mut_slice().fill(7);
            assert_eq!(buffer.as_slice(), vec![7; usize::try_from(bytes).unwrap()]);
            assert_eq!(buffer.as_slice().as_ptr().addr() % 16, 0);
        }
    }

    #[test]
    fn memory_that_no_system_has_is_an_error() {
        for bytes in [u64::MAX, u64::MAX / 2] {
            assert_eq!(Buffer::zeroed(bytes).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }
}
