//! Writes a bundle, loses the end of its last line as a power cut would, continues it, seals it and verifies it.

use std::error::Error;
use std::fs;

use evidence::{Bundle, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let parent = tempfile::tempdir()?;
    let dir = parent.path().join("evidence");

    let bundle = Bundle::create(&dir)?;
    bundle.write_file("campaign.toml", b"rows = 4\n")?;
    bundle.append("stage-finished", &"pin")?;
    bundle.append("stage-finished", &"build")?;
    drop(bundle);

    let journal = fs::read(dir.join("journal.jsonl"))?;
    fs::write(dir.join("journal.jsonl"), &journal[..journal.len() - 20])?;

    let bundle = Bundle::open(&dir)?;
    println!("the last writer left {:?}", bundle.recovery().torn);
    bundle.append("stage-finished", &"build")?;
    let manifest = bundle.seal()?;
    println!("sealed as {}", manifest.sha256);

    fs::write(dir.join("campaign.toml"), "rows = 3\n")?;
    let verification = verify(&dir)?;
    println!("intact: {}; altered: {:?}", verification.is_intact(), verification.altered);
    Ok(())
}
