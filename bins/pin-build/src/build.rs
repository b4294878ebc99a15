use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use command_line::{Exit, Interrupt};
use cpu_placement::CancelToken;
use revision_pin::{
    BuildError, BuildRecord, Builder, Checkout, CheckoutOptions, Patch, PinOptions, Recipe, pin,
};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::report::{Event, Reporter};
use crate::staging::Staging;

pub(crate) fn run(cli: &Cli) -> Result<(), Failure> {
    let interrupt = Interrupt::install().context("install signal handlers")?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    pin_and_build(cli, &cancel).map_err(|failure| failure.signalled(interrupt.exit()))
}

fn pin_and_build(cli: &Cli, cancel: &CancelToken) -> Result<(), Failure> {
    let reporter = Reporter::new(cli.message_format);
    let say = |event: Event<'_>| reporter.say(&event).context("write the result");
    let builder = builder(cli, cancel)?;
    let patches = cli.patch.iter().map(|path| Patch::read(path)).collect::<Result<Vec<_>, _>>()?;
    let pinned = pin(&cli.repo, &cli.commit, PinOptions::default().peel_tag(cli.peel_tag))?;
    say(Event::Pinned { revision: &pinned })?;

    let staging = Staging::new(&cli.out)?;
    let work = work_folder(cli, &staging)?;
    let options = CheckoutOptions::default().without_submodules(cli.without_submodules);
    let mut checkout = Checkout::create(&cli.repo, &pinned, &work.join("checkout"), options)?;
    say(Event::CheckedOut { lfs_pointers: checkout.lfs_pointers() })?;
    for (number, patch) in patches.iter().enumerate() {
        say(Event::Patched { patch: &checkout.apply(patch)? })?;
        staging.write(&format!("patches/{}-{}", number + 1, patch.name), patch.bytes())?;
    }

    say(Event::Building { command: command(&builder) })?;
    let name = &builder.recipe().target.name;
    let folder = work.join("build");
    let built = builder.build(&checkout, &folder, &staging.result().join(name), cli.seed.as_deref());
    let record = built.map_err(|error| failed(error, &folder))?.record;
    finish(cli, staging, &folder, &record)?;
    say(Event::Built { out: &cli.out, artifact: &cli.out.join(name), record: &record })?;
    Ok(())
}

fn builder(cli: &Cli, cancel: &CancelToken) -> Result<Builder, Failure> {
    let text = fs::read_to_string(&cli.recipe).map_err(|error| {
        Failure::new(Exit::BadInput, format!("read the recipe {}: {error}", cli.recipe.display()))
    })?;
    let mut builder = Builder::new(Recipe::from_toml(&text)?)?.cancel(cancel.clone());
    if let Some(jobs) = cli.jobs {
        builder = builder.jobs(jobs);
    }
    if let Some(seconds) = cli.time_limit {
        builder = builder.time_limit(Duration::from_secs(seconds));
    }
    if let Some(bytes) = cli.free_bytes {
        builder = builder.free_bytes(bytes);
    }
    Ok(builder)
}

fn command(builder: &Builder) -> Vec<String> {
    std::iter::once("cargo".to_owned()).chain(builder.recipe().arguments()).collect()
}

fn work_folder(cli: &Cli, staging: &Staging) -> Result<PathBuf, Failure> {
    let Some(work) = &cli.work else { return Ok(staging.work()) };
    if work.exists() {
        return Err(Failure::new(Exit::BadInput, format!("build in {}: it exists already", work.display())));
    }
    Ok(work.clone())
}

/// What cargo said is printed whole: its folder is about to be removed.
fn failed(error: BuildError, folder: &Path) -> Failure {
    let said = match &error {
        BuildError::Failed { .. } | BuildError::TimedOut { .. } => {
            fs::read_to_string(folder.join(revision_pin::BUILD_LOG)).ok()
        }
        _ => None,
    };
    Failure::from(error).with_log(said)
}

fn finish(cli: &Cli, staging: Staging, folder: &Path, record: &BuildRecord) -> Result<(), Failure> {
    let mut json = serde_json::to_vec_pretty(record).context("write record.json")?;
    json.push(b'\n');
    staging.write("record.json", &json)?;
    let log = fs::read(folder.join(revision_pin::BUILD_LOG)).context("read the log of the build")?;
    staging.write("build.log", &log)?;
    staging.publish()?;
    if cli.work.is_none() {
        return Ok(());
    }
    command_line::say!("pin-build: the checkout and the build tree are kept, as asked");
    Ok(())
}
