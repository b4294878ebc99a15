//! Pins two revisions of a tiny package, builds both, and states what the two builds have in common.

use std::error::Error;
use std::fs;
use std::path::Path;

use git2::{IndexAddOption, Repository, Signature};
use revision_pin::{
    Builder, Checkout, CheckoutOptions, PinError, PinOptions, Recipe, Target, TargetKind, pin, relationship,
    remove,
};

fn main() -> Result<(), Box<dyn Error>> {
    let top = tempfile::tempdir()?;
    let user = top.path().join("user");
    let baseline = commit(&user, "fn main() { println!(\"{}\", 6 * 7); }\n")?;
    let candidate = commit(&user, "fn main() { println!(\"{}\", 6 * 9); }\n")?;

    // A name is refused, with the id it means now.
    if let Err(error @ PinError::NotAnId { .. }) = pin(&user, "HEAD", PinOptions::default()) {
        println!("{error}");
    }
    let baseline = pin(&user, &baseline, PinOptions::default())?;
    let candidate = pin(&user, &candidate, PinOptions::default())?;
    println!("{}", relationship(&user, baseline.commit, candidate.commit)?);

    let target = Target { kind: TargetKind::Bin, name: "answer".to_owned() };
    let builder =
        Builder::new(Recipe { offline: true, ..Recipe::new("answer", target) })?.free_bytes(100 << 20);
    let (mut seed, mut records) = (None, Vec::new());
    for (name, pinned) in [("baseline", &baseline), ("candidate", &candidate)] {
        let work = top.path().join("work").join(name);
        let checkout = Checkout::create(&user, pinned, &work.join("checkout"), CheckoutOptions::default())?;
        let built = builder.build(&checkout, &work.join("build"), &work.join("answer"), seed.as_deref())?;
        println!("{name}: {} ({} bytes)", built.record.artifact.sha256, built.record.artifact.bytes);
        records.push(built.record);
        seed = Some(work.join("build"));
        checkout.remove()?;
    }
    println!("{:#?}", records[0].compare(&records[1]));
    remove(&top.path().join("work/baseline/build"))?;
    Ok(())
}

fn commit(user: &Path, main: &str) -> Result<String, Box<dyn Error>> {
    let repo = Repository::init(user)?;
    fs::create_dir_all(user.join("src"))?;
    fs::write(user.join("src/main.rs"), main)?;
    let package = "[package]\nname = \"answer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
    fs::write(user.join("Cargo.toml"), package)?;
    fs::write(
        user.join("Cargo.lock"),
        "version = 4\n\n[[package]]\nname = \"answer\"\nversion = \"0.1.0\"\n",
    )?;
    let mut index = repo.index()?;
    index.add_all(["*"], IndexAddOption::DEFAULT, None)?;
    index.write()?;
    let tree = repo.find_tree(index.write_tree()?)?;
    let who = Signature::now("Example", "example@example.org")?;
    let parents: Vec<_> = repo.head().ok().and_then(|head| head.peel_to_commit().ok()).into_iter().collect();
    let parents: Vec<_> = parents.iter().collect();
    Ok(repo.commit(Some("HEAD"), &who, &who, "Change the answer", &tree, &parents)?.to_string())
}
