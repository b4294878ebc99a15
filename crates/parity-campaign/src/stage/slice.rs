//! slice: the trace is found by its digest and the window's original bytes are cut from it.

use std::fs;
use std::path::{Path, PathBuf};

use canonical_json::Sha256;
use mooncake_trace::{Rules, SliceError, SliceManifest, Slicer, Window};

use crate::context::Context;
use crate::coverage::WorkloadTotals;
use crate::error::{At, CampaignError, Cause};
use crate::stage::Stage;

/// Folders that traces are looked for in, separated by `:`.
pub const TRACES_VARIABLE: &str = "KVRP_TRACES";

/// The window as a file, and what is known of it.
pub(crate) struct Sliced {
    pub(crate) path: PathBuf,
    pub(crate) manifest: SliceManifest,
    pub(crate) totals: WorkloadTotals,
}

/// `checkout` is the baseline's tree, for a trace that the repository carries.
pub(crate) fn slice(context: &Context<'_>, checkout: &Path) -> Result<Sliced, CampaignError> {
    let trace = &context.definition().trace;
    let source = find(context, checkout)?;
    let folder = context.work.join("input");
    fs::create_dir_all(&folder).at(Stage::Slice, Cause::HostUnfit)?;
    let path = folder.join("trace.jsonl");
    let window = Window::new(trace.offset, trace.count).at(Stage::Slice, Cause::BadInput)?;
    let mut rules = Rules::default();
    rules.block_size = trace.block_size;
    let stop = || context.cancel.is_cancelled();
    let mut slicer = Slicer::new(window).rules(rules).expect_source(trace.sha256).stop_when(&stop);
    if let Some(expected) = trace.slice_sha256 {
        slicer = slicer.expect_slice(expected);
    }
    let manifest = slicer.slice_file(&source, &path).map_err(refused)?;
    context.record(Stage::Slice, "records/slice.json", &manifest)?;
    let totals = WorkloadTotals {
        requests: manifest.slice.rows.get(),
        input_tokens: manifest.slice.input_tokens,
        output_tokens: manifest.slice.output_tokens,
    };
    Ok(Sliced { path, manifest, totals })
}

fn refused(error: SliceError) -> CampaignError {
    match error {
        SliceError::Cancelled { .. } => CampaignError::cancelled(Stage::Slice),
        error @ (SliceError::Write { .. } | SliceError::Create { .. }) => {
            CampaignError::new(Stage::Slice, Cause::HostUnfit, error)
        }
        other => CampaignError::new(Stage::Slice, Cause::BadInput, other),
    }
}

/// Finds the trace and sees that it is the named one, before two revisions are built for it.
pub(crate) fn find_named(context: &Context<'_>, checkout: &Path) -> Result<(), CampaignError> {
    let source = find(context, checkout)?;
    let digested =
        Sha256::of_file(&source).map_err(|error| format!("read the trace {}: {error}", source.display()));
    let (found, _) = digested.at(Stage::Slice, Cause::BadInput)?;
    let expected = context.definition().trace.sha256;
    if found == expected { Ok(()) } else { Err(refused(SliceError::UnexpectedSource { expected, found })) }
}

/// The first candidate that exists; its digest is checked while it is read.
fn find(context: &Context<'_>, checkout: &Path) -> Result<PathBuf, CampaignError> {
    let trace = &context.definition().trace;
    if let Some(given) = &context.options.trace {
        return Ok(given.clone());
    }
    let in_repository = trace.repository_file.iter().map(|path| checkout.join(path));
    let beside = trace.file.iter().map(|path| context.resolve(path));
    if let Some(found) = in_repository.chain(beside).find(|path| path.is_file()) {
        return Ok(found);
    }
    let folders = std::env::var_os(TRACES_VARIABLE).unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .find_map(|folder| search(&folder, trace.file.as_deref(), trace.sha256));
    found
        .ok_or_else(|| {
            format!("no trace with SHA-256 {}; give --trace FILE or set {TRACES_VARIABLE}", trace.sha256)
        })
        .at(Stage::Slice, Cause::BadInput)
}

/// A file of that name and digest, or else any file of that digest.
fn search(folder: &Path, name: Option<&Path>, sha256: Sha256) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| Sha256::of_file(path).is_ok_and(|(found, _)| found == sha256);
    let named = name.and_then(Path::file_name).map(|name| folder.join(name)).filter(|path| path.is_file());
    named.filter(is_it).or_else(|| {
        let files = fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        let jsonl = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        let mut jsonl = jsonl;
        jsonl.find(is_it)
    })
}
