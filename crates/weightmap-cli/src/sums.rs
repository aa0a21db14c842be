//! What tensors' bytes can be compared by.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use weightmap::Tensor;

use crate::render::hex;

/// The SHA-256 of tensors' bytes in hexadecimal digits, by name.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Sums(BTreeMap<String, String>);

impl Sums {
    /// Computes that of a tensor, unless it is there or the tensor lies in a mapped file: to touch its bytes ends the program
    /// by a signal where somebody cuts the file. Tells whether it is there.
    pub(crate) fn add(&mut self, tensor: &Tensor) -> bool {
        if self.0.contains_key(tensor.name()) {
            return true;
        }
        if tensor.is_mapped() {
            return false;
        }
        self.0.insert(tensor.name().to_owned(), hex(&Sha256::digest(tensor.bytes())));
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lines in the form of `sha256sum`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, digest)| format!("{digest}  {name}"))
    }
}
