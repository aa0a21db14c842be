//! What the header of a shard says of where its pieces belong.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Kept, PieceFault, count, quote};
use crate::header::Header;
use crate::shard_name::ShardName;

/// The key of `__metadata__` whose value is JSON text: `{"a.weight": {"saved_offsets": [0, 64]}}`.
const KEY: &str = "DCP_SHARDING_INFO";
/// Characters of a message of the JSON parser that are kept.
const MESSAGE_CHARS: usize = 200;

/// The offsets of a shard's pieces.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    /// By the number of the tensor in the header; as many as it has dimensions.
    by_entry: Vec<Option<Box<[u64]>>>,
    faults: Kept<PieceFault>,
}

impl Offsets {
    /// Reads what a header says; it need not say anything.
    pub(crate) fn read(shard: &ShardName, header: &Header) -> Self {
        let mut offsets = Self { by_entry: vec![None; header.len()], faults: Kept::default() };
        if let Some((_, text)) = header.metadata().find(|(key, _)| *key == KEY) {
            let mut json = serde_json::Deserializer::from_str(text);
            let reader = Reader { shard, header, offsets: &mut offsets };
            if let Err(error) = json.deserialize_map(reader).and_then(|()| json.end()) {
                let message = error.to_string().chars().take(MESSAGE_CHARS).collect();
                offsets.faults.push(PieceFault::Info { shard: shard.to_string(), message });
            }
        }
        offsets
    }

    /// Where the piece with this number in the header begins; `None` if that does not say.
    pub(crate) fn get(&self, number: u32) -> Option<&[u64]> {
        self.by_entry.get(number as usize)?.as_deref()
    }

    pub(super) fn faults(&self) -> &Kept<PieceFault> {
        &self.faults
    }
}

/// The object of tensors.
struct Reader<'a> {
    shard: &'a ShardName,
    header: &'a Header,
    offsets: &'a mut Offsets,
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name)? {
            let value: &RawValue = map.next_value()?;
            if let Err(fault) = self.take(&name, value.get()) {
                self.offsets.faults.push(fault);
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn take(&mut self, name: &str, value: &str) -> Result<(), PieceFault> {
        let entry = self.header.find(name).and_then(|number| Some((number, self.header.entry(number)?)));
        let (shard, tensor) = (|| self.shard.to_string(), || name.to_owned());
        let Some((number, entry)) = entry else {
            return Err(PieceFault::NotInShard { shard: shard(), tensor: tensor() });
        };
        let wrong = |reason| PieceFault::Offsets { shard: shard(), tensor: tensor(), reason };
        let offsets = saved_offsets(value).ok_or_else(|| {
            wrong(format!(r#"expected {{"saved_offsets": [whole numbers]}}, found {}"#, quote(value)))
        })?;
        if offsets.len() != entry.shape.len() {
            let dims = count(entry.shape.len() as u64, "dimension");
            return Err(wrong(format!("it has {dims} and {}", count(offsets.len() as u64, "offset"))));
        }
        match self.offsets.by_entry.get_mut(number as usize) {
            Some(place @ None) => *place = Some(offsets.into()),
            _ => return Err(wrong("its offsets are there twice".to_owned())),
        }
        Ok(())
    }
}

/// The offsets in the value of a tensor; there may be other fields.
fn saved_offsets(value: &str) -> Option<Vec<u64>> {
    #[derive(serde::Deserialize)]
    struct Saved {
        saved_offsets: Vec<u64>,
    }
    // A list would be taken for the fields in their order.
    let saved: Saved = value.starts_with('{').then(|| serde_json::from_str(value).ok())??;
    Some(saved.saved_offsets)
}

/// A name, borrowed from the text where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a tensor")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
