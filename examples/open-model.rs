//! Opens a checkpoint and looks at one tensor, without a copy.
//!
//! ```text
//! cargo run --example open-model
//! cargo run --example open-model -- path/to/model model.norm.weight
//! ```

use weightmap::ShardedModel;
use weightmap_testkit::Llama;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let demo = Llama::tiny().checkpoint().temp();
    let path = arguments.next().unwrap_or_else(|| demo.path().display().to_string());

    let model = ShardedModel::open(path)?;
    println!("{} tensors in {} shards", model.len(), model.shards().len());

    let first = || model.names().next().unwrap_or_default().to_owned();
    let name = arguments.next().unwrap_or_else(first);
    let tensor = model.view(&name)?;
    println!("{name}: {} {:?} in {}", tensor.dtype(), tensor.shape(), tensor.info().shard);
    // They lie in the file: should somebody cut it in this very moment, a signal ends the program. What is loaded with
    // `ReadMode::Buffered` is in memory of its own.
    println!("its first bytes: {:02x?}", tensor.bytes().iter().take(8).collect::<Vec<_>>());
    Ok(())
}
