//! What tensors' bytes can be compared by.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use weightmap::Tensor;

/// The SHA-256 of tensors' bytes in hexadecimal digits, by name.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Digests(BTreeMap<String, String>);

impl Digests {
    /// Computes that of a tensor.
    pub(crate) fn add(&mut self, tensor: &Tensor) {
        let digest = Sha256::digest(tensor.bytes()).iter().fold(String::new(), |mut hex, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        self.0.insert(tensor.name().to_owned(), digest);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lines in the form of `sha256sum`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, digest)| format!("{digest}  {name}"))
    }
}
