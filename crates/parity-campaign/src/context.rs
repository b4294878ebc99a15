//! What every stage shares: the definition, the bundle, the scratch folder, cancellation and progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use canonical_json::Sha256;
use cpu_placement::{CancelToken, NodeLock};
use evidence::{Bundle, Record, SCRATCH, read_journal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::definition::{CampaignFile, Definition};
use crate::error::{At, CampaignError, Cause};
use crate::exception::Exception;
use crate::executor::Executor;
use crate::executor::order::JOBS;
use crate::profile::ProfileWhen;
use crate::scratch::{ScratchClaim, remove_leftovers};
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
    /// Folder in which artifacts are kept, and from which one is taken over that was built of exactly the same.
    pub artifacts: Option<PathBuf>,
    /// What works the rows off. A campaign that is resumed goes on with the one it began with.
    pub executor: Executor,
    /// When both arms of a row are profiled.
    pub profile: ProfileWhen,
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
            artifacts: None,
            executor: Executor::Local,
            profile: ProfileWhen::default(),
            keep_work: false,
        }
    }
}

/// The journal's kind of a process that begins.
pub(crate) const STARTED: &str = "campaign.started";

/// What the evidence of a bundle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Purpose {
    Campaign,
    Search,
}

/// `campaign.started` and `campaign.resumed` in the journal.
#[derive(Debug, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Started {
    pub(crate) campaign: String,
    pub(crate) campaign_sha256: Sha256,
    pub(crate) preflight: bool,
    pub(crate) purpose: Purpose,
    /// What works the rows off.
    #[serde(default)]
    pub(crate) executor: Executor,
    pub(crate) written_by: String,
}

/// The folder below the scratch folder that survives a resume, because builds take long.
pub(crate) const ARTIFACTS: &str = "artifact";

/// A changed campaign file is a new campaign (I2).
pub(crate) fn same_file(file: &CampaignFile, began: Sha256) -> Result<(), String> {
    let found = file.sha256;
    if found == began {
        return Ok(());
    }
    Err(format!("the campaign file has digest {found}, this campaign began with {began}"))
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What was made outside of it, and what for.
    pub(crate) made_elsewhere: Vec<(PathBuf, &'static str)>,
    pub(crate) exceptions: Vec<Exception>,
    /// What an earlier process recorded of this campaign, when it goes on where that one stopped.
    pub(crate) earlier: Option<Earlier>,
    pub(crate) executor: Executor,
    /// Whether jobs work with the scratch folder, so that it must outlive this process.
    pub(crate) jobs_outstanding: bool,
    /// Whether regression tests are left to whoever has the checkouts.
    pub(crate) tests_elsewhere: bool,
    _claim: Option<ScratchClaim>,
}

/// How long the remains of a killed process may hold its bundle.
const REMAINS: Duration = Duration::from_secs(10);

/// Claims scratch, so that the next start removes it if this process is killed.
pub(crate) fn claim(options: &Options, folder: &Path) -> Result<ScratchClaim, CampaignError> {
    ScratchClaim::new(&options.staging, &[folder]).at(Stage::Pin, Cause::HostUnfit)
}

/// The records of the processes before this one.
pub(crate) struct Earlier {
    journal: Vec<Record>,
}

impl Earlier {
    /// Records of other attempts at the same work.
    pub(crate) fn of(journal: Vec<Record>) -> Self {
        Earlier { journal }
    }

    /// The payloads of one kind, in order.
    pub(crate) fn payloads<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<T>, CampaignError> {
        let records = self.journal.iter().filter(|record| record.kind == kind);
        records.map(Record::payload).collect::<Result<_, _>>().at(Stage::Pin, Cause::BadInput)
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.journal
    }
}

impl<'a> Context<'a> {
    /// Opens the bundle of a campaign that did not come to its end. What can be made again is removed; artifacts stay.
    pub(crate) fn resume(
        file: &'a CampaignFile,
        options: &'a Options,
        cancel: &'a CancelToken,
        progress: &'a mut dyn Progress,
    ) -> Result<Self, CampaignError> {
        let bundle = Bundle::open_within(&options.out, REMAINS).at(Stage::Pin, Cause::BadInput)?;
        let journal = read_journal(&options.out).at(Stage::Pin, Cause::BadInput)?.records;
        let work = fs::canonicalize(&options.out).at(Stage::Pin, Cause::HostUnfit)?.join(SCRATCH);
        remove_leftovers(&options.staging, Some(&work)).at(Stage::Pin, Cause::HostUnfit)?;
        let earlier = Earlier { journal };
        let executor = executor_of(&earlier)?.unwrap_or(options.executor);
        let mut context = Self::over(bundle, file, options, executor, cancel, progress, Some(earlier))?;
        context.jobs_outstanding = context.work.join(JOBS).exists();
        context.refuse_another_campaign()?;
        context.remove_all_but_artifacts().at(Stage::Pin, Cause::HostUnfit)?;
        Ok(context)
    }

    /// A changed campaign file is a new campaign (I2), a search is none, and what was lost cannot be gone on with.
    fn refuse_another_campaign(&self) -> Result<(), CampaignError> {
        if let Some(missing) = self.bundle.recovery().missing.first() {
            let message = format!("{missing:?} was recorded and is gone");
            return Err(CampaignError::new(Stage::Pin, Cause::BadInput, message));
        }
        let started = self.earlier.as_ref().map_or(Ok(Vec::new()), |earlier| earlier.payloads(STARTED))?;
        if started.iter().any(|one: &Started| one.purpose != Purpose::Campaign) {
            let message = "this is the evidence of a search; start it again in another folder";
            return Err(CampaignError::new(Stage::Pin, Cause::BadInput, message));
        }
        let Some(recorded) = self.bundle.file("campaign.toml") else { return Ok(()) };
        same_file(self.file, recorded.sha256)
            .map_err(|message| CampaignError::new(Stage::Pin, Cause::BadInput, message))
    }

    pub(crate) fn remove_all_but_artifacts(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.work)? {
            let entry = entry?;
            if entry.file_name() == ARTIFACTS || entry.file_name() == JOBS {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?
            } else {
                fs::remove_file(entry.path())?
            }
        }
        Ok(())
    }

    /// What an earlier process recorded in this file, if it came that far.
    pub(crate) fn recorded<T: DeserializeOwned>(
        &self,
        stage: Stage,
        path: &str,
    ) -> Result<Option<T>, CampaignError> {
        let Some(file) = self.bundle.file(path).filter(|_| self.earlier.is_some()) else { return Ok(None) };
        let bytes = file.read(self.bundle.dir()).at(stage, Cause::BadInput)?;
        serde_json::from_slice(&bytes).map(Some).at(stage, Cause::BadInput)
    }

    /// Writes a file of the bundle; a resumed campaign may write again what an earlier process had written.
    pub(crate) fn write_file(&self, stage: Stage, path: &str, bytes: &[u8]) -> Result<(), CampaignError> {
        let written = match self.bundle.file(path).filter(|_| self.earlier.is_some()) {
            // What is on the disk counts too: a kill may have come between a file and its record.
            Some(file) if file.read(self.bundle.dir()).is_ok_and(|found| found == bytes) => return Ok(()),
            Some(_) => self.bundle.replace_file(path, bytes),
            None => self.bundle.write_file(path, bytes),
        };
        written.map(drop).at(stage, Cause::HostUnfit)
    }

    pub(crate) fn create(
        file: &'a CampaignFile,
        options: &'a Options,
        cancel: &'a CancelToken,
        progress: &'a mut dyn Progress,
    ) -> Result<Self, CampaignError> {
        let bundle = Bundle::create(&options.out).at(Stage::Pin, Cause::BadInput)?;
        Self::over(bundle, file, options, options.executor, cancel, progress, None)
    }

    fn over(
        bundle: Bundle,
        file: &'a CampaignFile,
        options: &'a Options,
        executor: Executor,
        cancel: &'a CancelToken,
        progress: &'a mut dyn Progress,
        earlier: Option<Earlier>,
    ) -> Result<Self, CampaignError> {
        let work = fs::canonicalize(&options.out).at(Stage::Pin, Cause::HostUnfit)?.join(SCRATCH);
        fs::create_dir_all(&work).at(Stage::Pin, Cause::HostUnfit)?;
        // What jobs work with must not be taken for the scratch of a process that was killed.
        let unclaimed = options.keep_work || executor == Executor::Slurm;
        let claim = if unclaimed { None } else { Some(claim(options, &work)?) };
        Ok(Context {
            file,
            options,
            bundle,
            cancel,
            progress,
            times: Vec::new(),
            work,
            made_elsewhere: Vec::new(),
            exceptions: Vec::new(),
            earlier,
            executor,
            jobs_outstanding: false,
            tests_elsewhere: false,
            _claim: claim,
        })
    }

    /// A row or a build in a job: `work` is on the node's own storage, and exception records are proved elsewhere.
    pub(crate) fn of_job(
        file: &'a CampaignFile,
        options: &'a Options,
        bundle: Bundle,
        work: &Path,
        cancel: &'a CancelToken,
        progress: &'a mut dyn Progress,
        seen: Earlier,
    ) -> Result<Self, CampaignError> {
        let work = fs::canonicalize(work).at(Stage::Run, Cause::HostUnfit)?;
        let claim = claim(options, &work)?;
        Ok(Context {
            file,
            options,
            bundle,
            cancel,
            progress,
            times: Vec::new(),
            work,
            made_elsewhere: Vec::new(),
            exceptions: Vec::new(),
            earlier: Some(seen),
            executor: Executor::Local,
            jobs_outstanding: false,
            tests_elsewhere: true,
            _claim: Some(claim),
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

    /// A text without the folders of this machine.
    pub(crate) fn hide_paths(&self, text: &str) -> String {
        let out = self.work.parent().map(Path::to_path_buf).unwrap_or_default();
        let repository = self.options.repository.clone();
        let trace = self.options.trace.as_ref().and_then(|trace| trace.parent()).map(Path::to_path_buf);
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let folders = [
            (Some(self.work.clone()), "{work}"),
            (Some(out), "{out}"),
            (repository, "{repository}"),
            (trace, "{traces}"),
            (Some(self.file.folder.clone()), "{campaign}"),
            (Some(self.options.staging.clone()), "{staging}"),
            (home, "{home}"),
        ];
        let mut text = text.to_owned();
        for (folder, name) in folders {
            // A relative folder tells nothing of the machine, and the root would take every slash.
            let folder = folder.filter(|folder| folder.is_absolute() && folder.parent().is_some());
            if let Some(folder) = folder {
                text = text.replace(&*folder.to_string_lossy(), name);
            }
        }
        text
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

    /// Writes one record of a finished stage as pretty JSON. A record of an earlier process must say the same: a campaign
    /// goes on only with what it began with.
    pub(crate) fn record(
        &self,
        stage: Stage,
        path: &str,
        value: &impl Serialize,
    ) -> Result<(), CampaignError> {
        let mut bytes = serde_json::to_vec_pretty(value).at(stage, Cause::Bug)?;
        bytes.push(b'\n');
        match self.recorded::<serde_json::Value>(stage, path)? {
            None => self.write_file(stage, path, &bytes),
            Some(earlier) if Some(&earlier) == serde_json::from_slice(&bytes).ok().as_ref() => Ok(()),
            Some(_) => {
                let message = format!("{path} would not be what it was when this campaign began");
                Err(CampaignError::new(stage, Cause::BadInput, message))
            }
        }
    }
}

/// What worked the rows off when the campaign began.
fn executor_of(earlier: &Earlier) -> Result<Option<Executor>, CampaignError> {
    let started: Vec<Started> = earlier.payloads(STARTED)?;
    Ok(started.first().map(|started| started.executor))
}

/// Whole milliseconds since `start`.
pub(crate) fn milliseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
