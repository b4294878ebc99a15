//! What every stage shares: the definition, the bundle, the scratch folder, cancellation and progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cpu_placement::{CancelToken, NodeLock};
use evidence::{Bundle, FileRef, SCRATCH};
use serde::Serialize;

use crate::definition::{CampaignFile, Definition};
use crate::error::{At, CampaignError, Cause};
use crate::exception::Exception;
use crate::scratch::ScratchClaim;
use crate::stage::Stage;

/// Where a campaign reads and writes; none of it decides a verdict.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The bundle; must not exist.
    pub out: PathBuf,
    /// Overrides the repository of the campaign file.
    pub repository: Option<PathBuf>,
    /// Overrides the trace of the campaign file.
    pub trace: Option<PathBuf>,
    /// Node-local folder that artifacts and inputs are staged in before measuring.
    pub staging: PathBuf,
    /// Folder of the lock that keeps builds and measurements of this node apart. Everybody on a node must use the same.
    pub node_lock: PathBuf,
    /// Folder of an earlier build whose compiled registry packages may be taken over.
    pub seed: Option<PathBuf>,
    /// Keep the scratch folder when the campaign ends, for an investigation.
    pub keep_work: bool,
}

impl Options {
    /// A campaign whose evidence goes to `out`, staged in the system's temporary folder.
    #[must_use]
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Options {
            out: out.into(),
            repository: None,
            trace: None,
            staging: std::env::temp_dir(),
            node_lock: NodeLock::default_directory(),
            seed: None,
            keep_work: false,
        }
    }
}

/// What a campaign tells whoever watches it.
pub trait Progress {
    /// A stage begins.
    fn stage(&mut self, stage: Stage);
    /// One line about what is being done.
    fn note(&mut self, text: &str);
}

/// A watcher that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _: Stage) {}
    fn note(&mut self, _: &str) {}
}

/// How long a stage took.
#[derive(Clone, Debug, Serialize, serde::Deserialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Its wall time.
    pub wall_ms: u64,
}

pub(crate) struct Context<'a> {
    pub(crate) file: &'a CampaignFile,
    pub(crate) options: &'a Options,
    pub(crate) bundle: Bundle,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) times: Vec<StageTime>,
    /// Absolute, so that a child's working directory does not matter.
    pub(crate) work: PathBuf,
    pub(crate) exceptions: Vec<Exception>,
    _claim: Option<ScratchClaim>,
}

/// Claims scratch, so that the next start removes it if this process is killed.
pub(crate) fn claim(options: &Options, folder: &Path) -> Result<ScratchClaim, CampaignError> {
    ScratchClaim::new(&options.staging, &[folder]).at(Stage::Pin, Cause::HostUnfit)
}

impl<'a> Context<'a> {
    pub(crate) fn create(
        file: &'a CampaignFile,
        options: &'a Options,
        cancel: &'a CancelToken,
        progress: &'a mut dyn Progress,
    ) -> Result<Self, CampaignError> {
        let bundle = Bundle::create(&options.out).at(Stage::Pin, Cause::BadInput)?;
        let out = fs::canonicalize(&options.out).at(Stage::Pin, Cause::HostUnfit)?;
        let work = out.join(SCRATCH);
        fs::create_dir_all(&work).at(Stage::Pin, Cause::HostUnfit)?;
        let claim = if options.keep_work { None } else { Some(claim(options, &work)?) };
        Ok(Context {
            file,
            options,
            bundle,
            cancel,
            progress,
            times: Vec::new(),
            work,
            exceptions: Vec::new(),
            _claim: claim,
        })
    }

    pub(crate) fn definition(&self) -> &'a Definition {
        &self.file.definition
    }

    /// A path of the campaign file, as this process can open it.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        self.file.folder.join(path)
    }

    /// Runs one stage, or a part of it: says so, adds its time, and stops before it when asked to.
    pub(crate) fn timed<T>(
        &mut self,
        stage: Stage,
        body: impl FnOnce(&mut Self) -> Result<T, CampaignError>,
    ) -> Result<T, CampaignError> {
        if self.cancel.is_cancelled() {
            return Err(CampaignError::cancelled(stage));
        }
        self.progress.stage(stage);
        let start = Instant::now();
        let result = body(self);
        self.add_time(stage, start);
        result
    }

    fn add_time(&mut self, stage: Stage, start: Instant) {
        let wall_ms = milliseconds(start);
        match self.times.iter_mut().find(|time| time.stage == stage) {
            Some(time) => time.wall_ms += wall_ms,
            None => self.times.push(StageTime { stage, wall_ms }),
        }
    }

    /// Appends to the journal.
    pub(crate) fn append(
        &self,
        stage: Stage,
        kind: &str,
        payload: &impl Serialize,
    ) -> Result<(), CampaignError> {
        self.bundle.append(kind, payload).map(drop).at(stage, Cause::HostUnfit)
    }

    /// Writes one record of a finished stage as pretty JSON.
    pub(crate) fn record(
        &self,
        stage: Stage,
        path: &str,
        value: &impl Serialize,
    ) -> Result<FileRef, CampaignError> {
        let mut bytes = serde_json::to_vec_pretty(value).at(stage, Cause::Bug)?;
        bytes.push(b'\n');
        self.bundle.write_file(path, &bytes).at(stage, Cause::HostUnfit)
    }
}

/// Whole milliseconds since `start`.
pub(crate) fn milliseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
