use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use canonical_json::Sha256;
use cpu_placement::{CancelToken, Finished, LockError, NodeLock, Outcome, Output, Run, SpawnError};

use crate::artifact::{self, Artifact, ArtifactError};
use crate::config_files::ConfigFiles;
use crate::environment::{Composed, Environment};
use crate::folder::{self, FolderError, make_new, remove};
use crate::host_paths::HostPaths;
use crate::manifest::{Metadata, ProtocolNeedsUpdating};
use crate::messages::{self, Message, Origin, origin};
use crate::record::{BUILD_SCHEMA, BUILD_VERSION, BuildRecord, Toolchain, UnitCounts};
use crate::seed::{Seeded, Units};
use crate::store::{Entry, Stored};
use crate::wrapper::{self, PathMapping};
use crate::{Checkout, CheckoutError, CommitId, Recipe, RecipeError};

/// Builds the artifact of a recipe out of checkouts.
///
/// Every build has a folder of its own, with a target directory that did not exist before. It may start from the
/// compiled registry packages of an earlier build, and from nothing else.
#[derive(Clone, Debug)]
pub struct Builder {
    recipe: Recipe,
    environment: Environment,
    cargo: PathBuf,
    jobs: Option<u32>,
    time_limit: Option<Duration>,
    free_bytes: u64,
    node_lock: Option<PathBuf>,
    store: Option<PathBuf>,
    cancel: CancelToken,
}

/// What a build gave.
#[derive(Debug)]
#[must_use = "an artifact was built and recorded"]
#[non_exhaustive]
pub struct Built {
    /// Where the artifact is.
    pub artifact: PathBuf,
    /// Everything about it.
    pub record: BuildRecord,
}

/// A revision cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The revision no longer has what the recipe names.
    #[error(transparent)]
    ProtocolNeedsUpdating(#[from] ProtocolNeedsUpdating),
    /// The folder of the build, or of the build it should start from, cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is too little room for a build.
    #[error("build in {}: it needs {need_bytes} bytes of disk and {have_bytes} are free", path.display())]
    DiskSpace {
        /// The folder of the build.
        path: PathBuf,
        /// How much it needs.
        need_bytes: u64,
        /// How much there is.
        have_bytes: u64,
    },
    /// The recipe wants the lock file as it is, and the revision has none.
    #[error(
        "build {commit}: the recipe is locked, and the revision has no Cargo.lock at the top of its workspace"
    )]
    NoLockfile {
        /// The revision.
        commit: CommitId,
    },
    /// A measurement holds the node, and waiting for it was cancelled.
    #[error("build {commit}: wait for measurements on this node")]
    NodeLock {
        /// The revision.
        commit: CommitId,
        /// Who holds it.
        #[source]
        source: Box<LockError>,
    },
    /// A program could not be started.
    #[error("build {commit}: start `{program}`")]
    Spawn {
        /// The revision.
        commit: CommitId,
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: Box<SpawnError>,
    },
    /// A program failed.
    #[error("build {commit}: `{program}` {}: {first_error}", ended(*outcome))]
    Failed {
        /// The revision.
        commit: CommitId,
        /// The program and its first argument.
        program: String,
        /// How it ended.
        outcome: Outcome,
        /// The first line of its output that names an error, or the last line.
        first_error: String,
        /// The whole of its standard error.
        log: PathBuf,
    },
    /// The build ran longer than it may.
    #[error("build {commit}: it ran longer than {} s and was stopped", limit.as_secs())]
    TimedOut {
        /// The revision.
        commit: CommitId,
        /// The limit.
        limit: Duration,
    },
    /// The caller's token was cancelled; nothing of the build runs any more.
    #[error("build {commit}: cancelled")]
    Cancelled {
        /// The revision.
        commit: CommitId,
    },
    /// What a program printed could not be understood.
    #[error("build {commit}: understand line {line} of the output of `{program}`")]
    Output {
        /// The revision.
        commit: CommitId,
        /// The program and its first argument.
        program: String,
        /// The line; 0 if the output cannot be read at all.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// cargo ended well and named no executable, or several.
    #[error("build {commit}: cargo names {count} executables for the target `{target}`")]
    Executables {
        /// The revision.
        commit: CommitId,
        /// The target.
        target: String,
        /// How many.
        count: usize,
    },
    /// cargo took a package that is not of a registry for compiled already. With a directory of its own that cannot
    /// be, so the artifact cannot be trusted.
    #[error("build {commit}: cargo reused the package `{package}`, which is not of a registry")]
    Reused {
        /// The revision.
        commit: CommitId,
        /// Its id.
        package: String,
    },
    /// The executable cannot be taken over.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The checkout cannot be compared with its revision.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    /// A file around the build cannot be read or written.
    #[error("build {commit}: {action}")]
    Io {
        /// The revision.
        commit: CommitId,
        /// What was attempted.
        action: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn ended(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exited with {code}"),
        Outcome::Signalled(signal) => format!("was killed by signal {signal}"),
        Outcome::TimedOut => "ran too long".to_owned(),
        Outcome::Cancelled => "was cancelled".to_owned(),
        other => format!("ended as {other:?}"),
    }
}

/// Free space that a build asks for unless told otherwise; a release build of Dynamo's benchmark takes about 1 GB.
const FREE_BYTES: u64 = 4 << 30;

/// How long `cargo metadata`, `rustc -vV` and the like may take.
const QUESTION_LIMIT: Duration = Duration::from_secs(300);

impl Builder {
    /// A builder with the environment of this process, the node's lock, 4 GiB of free disk and no time limit.
    ///
    /// # Errors
    ///
    /// The recipe cannot be used.
    pub fn new(recipe: Recipe) -> Result<Self, RecipeError> {
        recipe.validate()?;
        Ok(Builder {
            recipe,
            environment: Environment::of_process(),
            cargo: PathBuf::from("cargo"),
            jobs: None,
            time_limit: None,
            free_bytes: FREE_BYTES,
            node_lock: Some(NodeLock::default_directory()),
            store: None,
            cancel: CancelToken::new(),
        })
    }

    /// The recipe.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Takes variables from here instead of from this process.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Runs this cargo instead of the one on `PATH`.
    #[must_use]
    pub fn cargo(mut self, cargo: impl Into<PathBuf>) -> Self {
        self.cargo = cargo.into();
        self
    }

    /// How many jobs cargo runs at once. It does not shape the artifact.
    #[must_use]
    pub fn jobs(mut self, jobs: u32) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// How long one build may take.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// How much disk must be free before a build starts.
    #[must_use]
    pub fn free_bytes(mut self, bytes: u64) -> Self {
        self.free_bytes = bytes;
        self
    }

    /// The directory of the lock that keeps builds and measurements of this node apart; nothing builds without it.
    #[must_use]
    pub fn node_lock(mut self, directory: Option<PathBuf>) -> Self {
        self.node_lock = directory;
        self
    }

    /// Keeps artifacts in this folder, and takes one over that was built of the same commit, patches, recipe, lock file,
    /// environment, configuration files and tools. The record says so. An artifact whose bytes depend on where it was
    /// built is never kept.
    #[must_use]
    pub fn store(mut self, folder: Option<PathBuf>) -> Self {
        self.store = folder;
        self
    }

    /// The token that stops a build.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Checks that a revision has the package, the features and the executable of the recipe, without building.
    ///
    /// `folder` must not exist; it is gone afterwards.
    ///
    /// # Errors
    ///
    /// Something is missing ([`ProtocolNeedsUpdating`] names it), or cargo cannot read the revision's manifests.
    pub fn check(&self, checkout: &Checkout, folder: &Path) -> Result<(), BuildError> {
        let build = Build::new(self, checkout, folder)?;
        let checked = build.metadata().and_then(|metadata| {
            metadata.check(&self.recipe, build.commit)?;
            Ok(())
        });
        remove(folder)?;
        checked
    }

    /// Builds a checkout and puts the executable at `artifact`.
    ///
    /// `folder` must not exist. It keeps the target directory and cargo's output, also when the build fails; the
    /// caller [removes](crate::remove) it. `seed` is the folder of an earlier build to start from.
    ///
    /// # Errors
    ///
    /// The revision lacks something, the build failed, ran too long or was cancelled, the disk is too full, or what it
    /// gave cannot be trusted.
    pub fn build(
        &self,
        checkout: &Checkout,
        folder: &Path,
        artifact: &Path,
        seed: Option<&Path>,
    ) -> Result<Built, BuildError> {
        let build = Build::new(self, checkout, folder)?;
        build.require_space()?;
        let metadata = build.metadata()?;
        let package = metadata.check(&self.recipe, build.commit)?;
        let lockfile = metadata.workspace_root.join("Cargo.lock");
        if self.recipe.locked && !lockfile.is_file() {
            return Err(BuildError::NoLockfile { commit: build.commit });
        }
        let lockfile_sha256 = Sha256::of_file(&lockfile).ok().map(|(sha256, _)| sha256);
        let entry = build.entry(lockfile_sha256)?;
        if let Some(built) =
            entry.as_ref().map(|entry| build.take_over(entry, artifact)).transpose()?.flatten()
        {
            return Ok(built);
        }
        let seeded = seed.map(|seed| build.seed(seed)).transpose()?;
        let (seeded, origins) = seeded.unzip();
        let origins = origins.unwrap_or_default();
        let (finished, messages) = build.cargo_build()?;
        let made = build.executable(&package.id, &messages)?;
        let units = build.count_units(&messages)?;
        let paths = build.paths.with(origins.iter().map(|origin| (origin.clone(), "{seed}")));
        let artifact_record = artifact::take(made.0, artifact, &paths)?;
        build.list_units(&messages, origins)?;
        let made = Made {
            package_version: package.version.clone(),
            features: made.1,
            lockfile_sha256,
            seeded,
            units,
            artifact: artifact_record,
        };
        let record = build.record(&finished, made)?;
        if let Some(entry) = entry {
            let log = build.folder.join(BUILD_LOG);
            entry.keep(artifact, &log, &record).map_err(build.io("keep the artifact for later builds"))?;
        }
        Ok(Built { artifact: artifact.to_owned(), record })
    }
}

/// One build in its folder.
struct Build<'a> {
    builder: &'a Builder,
    checkout: &'a Checkout,
    commit: CommitId,
    folder: PathBuf,
    target: PathBuf,
    cargo_home: Option<PathBuf>,
    paths: HostPaths,
    composed: Composed,
    config: ConfigFiles,
    mapping: Option<PathMapping>,
    toolchain: Toolchain,
}

/// Name of the file, in the folder of a build, that holds what cargo said, with names in place of host paths. It is
/// there once cargo was started, whether the build went well or not.
pub const BUILD_LOG: &str = "build.log";

const UNITS: &str = "units.json";
const TARGET: &str = "target";
const WRAPPER: &str = "rustc-wrapper";

impl<'a> Build<'a> {
    fn new(builder: &'a Builder, checkout: &'a Checkout, folder: &Path) -> Result<Self, BuildError> {
        let folder = make_new(folder)?;
        folder::mark(&folder)?;
        let commit = checkout.pinned().commit;
        let target = folder.join(TARGET);
        let cargo_home = builder.environment.cargo_home();
        let mut known = vec![
            (checkout.root().to_owned(), "{checkout}"),
            (target.clone(), "{target}"),
            (folder.clone(), "{folder}"),
        ];
        known.extend(cargo_home.iter().flat_map(|home| spellings(home)).map(|home| (home, "{cargo-home}")));
        known.extend(builder.environment.home().map(|home| (home, "{home}")));
        let paths = HostPaths::new(known);
        let io = |action| move |source| BuildError::Io { commit, action, source };
        let config = ConfigFiles::find(checkout.root(), cargo_home.as_deref())
            .map_err(io("read cargo's configuration files"))?;
        let nothing = Toolchain { rustc: Vec::new(), cargo: String::new(), cc: None };
        let composed = builder.environment.compose(&builder.recipe, &[], &paths);
        let mut build = Build {
            builder,
            checkout,
            commit,
            folder,
            target,
            cargo_home,
            paths,
            composed,
            config,
            mapping: None,
            toolchain: nothing,
        };
        build.toolchain = build.ask_toolchain()?;
        if builder.recipe.remap {
            build.mapping = Some(build.write_wrapper()?);
        }
        build.composed = build.compose();
        Ok(build)
    }

    fn io(&self, action: &'static str) -> impl FnOnce(io::Error) -> BuildError + use<> {
        let commit = self.commit;
        move |source| BuildError::Io { commit, action, source }
    }

    /// A variable has precedence over a configuration file, and the build directory over the target directory: with
    /// either set by a file, two revisions could share what must be apart.
    fn compose(&self) -> Composed {
        let wrapper = self.folder.join(WRAPPER);
        let target = self.target.as_os_str();
        let mut own: Vec<(&str, &OsStr)> =
            vec![("CARGO_TARGET_DIR", target), ("CARGO_BUILD_BUILD_DIR", target)];
        if self.mapping.is_some() {
            own.push(("RUSTC_WRAPPER", wrapper.as_os_str()));
        }
        self.builder.environment.compose(&self.builder.recipe, &own, &self.paths)
    }

    fn require_space(&self) -> Result<(), BuildError> {
        let stat = nix::sys::statvfs::statvfs(&self.folder).map_err(io::Error::from);
        let stat = stat.map_err(self.io("look up the free space"))?;
        let have_bytes = stat.blocks_available().saturating_mul(stat.fragment_size());
        let need_bytes = self.builder.free_bytes;
        match have_bytes < need_bytes {
            true => Err(BuildError::DiskSpace { path: self.folder.clone(), need_bytes, have_bytes }),
            false => Ok(()),
        }
    }

    /// Runs a program of the toolchain in the checkout, its output going to `NAME.stdout` and `NAME.stderr`.
    fn run(
        &self,
        name: &str,
        program: &Path,
        args: Vec<OsString>,
        limit: Option<Duration>,
    ) -> Result<Ran, BuildError> {
        let (stdout, stderr) =
            (self.folder.join(format!("{name}.stdout")), self.folder.join(format!("{name}.stderr")));
        let mut run = Run::new(program).args(args).cwd(self.checkout.root());
        run = run.stdout(Output::File(stdout.clone())).stderr(Output::File(stderr.clone()));
        run.env = self.composed.variables.clone();
        run.time_limit = limit;
        let commit = self.commit;
        let finished = run.wait(&self.builder.cancel).map_err(|source| match source {
            SpawnError::Cancelled { .. } => BuildError::Cancelled { commit },
            source => BuildError::Spawn { commit, program: name.to_owned(), source: Box::new(source) },
        })?;
        match (finished.outcome, limit) {
            (Outcome::Exited(0), _) => Ok(Ran { finished, stdout }),
            (Outcome::Cancelled, _) => Err(BuildError::Cancelled { commit }),
            (Outcome::TimedOut, Some(limit)) => Err(BuildError::TimedOut { commit, limit }),
            (outcome, _) => {
                let first_error = first_error(&stderr).map_err(self.io("read the output of a program"))?;
                Err(BuildError::Failed {
                    commit,
                    program: name.replace('-', " "),
                    outcome,
                    first_error,
                    log: stderr,
                })
            }
        }
    }

    fn ask(&self, name: &str, program: &Path, args: &[&str]) -> Result<String, BuildError> {
        let ran = self.run(name, program, args.iter().map(OsString::from).collect(), Some(QUESTION_LIMIT))?;
        fs::read_to_string(&ran.stdout).map_err(|source| self.output(name, 0, source))
    }

    fn output(&self, program: &str, line: u64, source: io::Error) -> BuildError {
        BuildError::Output { commit: self.commit, program: program.replace('-', " "), line, source }
    }

    fn ask_toolchain(&self) -> Result<Toolchain, BuildError> {
        let rustc = self.ask("rustc-version", Path::new("rustc"), &["-vV"])?;
        let cargo = self.ask("cargo-version", &self.builder.cargo, &["-V"])?;
        let cc = match self.ask("cc-version", Path::new("cc"), &["--version"]) {
            Ok(printed) => printed.lines().next().map(str::to_owned),
            // Without a C compiler the link will fail, and say so better than a version question can.
            Err(BuildError::Spawn { .. } | BuildError::Failed { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Toolchain {
            rustc: rustc.lines().map(str::to_owned).collect(),
            cargo: cargo.trim().to_owned(),
            cc,
        })
    }

    /// The sources of the standard library are mapped too: with the component installed, rustc puts its path in
    /// place of the neutral one that the library was compiled with.
    fn write_wrapper(&self) -> Result<PathMapping, BuildError> {
        let sysroot = self.ask("rustc-sysroot", Path::new("rustc"), &["--print", "sysroot"])?;
        let hash = self.toolchain.rustc.iter().find_map(|line| line.strip_prefix("commit-hash: "));
        let mut prefixes = vec![
            (self.checkout.root().to_owned(), "/source".to_owned()),
            (self.target.clone(), "/target".to_owned()),
        ];
        let homes = self.cargo_home.iter().flat_map(|home| spellings(home));
        prefixes.extend(homes.map(|home| (home, "/cargo".to_owned())));
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
        prefixes.push((library, format!("/rustc/{}", hash.unwrap_or("unknown"))));
        wrapper::write(&self.folder.join(WRAPPER), &prefixes, &self.paths)
            .map_err(self.io("write the rustc wrapper"))
    }

    fn metadata(&self) -> Result<Metadata, BuildError> {
        let args = ["metadata", "--format-version", "1", "--no-deps"];
        let printed = self.ask("cargo-metadata", &self.builder.cargo, &args)?;
        serde_json::from_str(&printed).map_err(|error| self.output("cargo-metadata", 1, error.into()))
    }

    /// Starts the target directory from the registry packages of an earlier build; also says where they were compiled.
    fn seed(&self, from: &Path) -> Result<(Seeded, BTreeSet<PathBuf>), BuildError> {
        let list = from.join(UNITS);
        let io = || self.io("copy compiled registry packages from the earlier build");
        let units: Units = match fs::read(&list) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(io())?,
            Err(error) => return Err(io()(error)),
        };
        let seeded = units.copy(&from.join(TARGET), &self.target).map_err(io())?;
        Ok((seeded, units.origins))
    }

    /// The place in the store of what this build would give.
    fn entry(&self, lockfile_sha256: Option<Sha256>) -> Result<Option<Entry>, BuildError> {
        let Some(store) = &self.builder.store else { return Ok(None) };
        let patches: Vec<Sha256> = self.checkout.patches().iter().map(|patch| patch.sha256).collect();
        let source = (self.commit, patches, self.checkout.submodules(), self.checkout.lfs_pointers());
        // The script that maps host paths holds them; what it maps them to is what shapes the artifact.
        let mapping = self.mapping.as_ref().map(|mapping| &mapping.prefixes);
        let settings = (&self.builder.recipe, &self.composed.recorded, &self.config.files, mapping);
        let key = (source, lockfile_sha256, settings, &self.toolchain);
        Entry::of(store, &key).map(Some).map_err(self.io("look for an earlier build"))
    }

    /// An artifact that an earlier build made of the same.
    fn take_over(&self, entry: &Entry, artifact: &Path) -> Result<Option<Built>, BuildError> {
        let stored = entry.take(artifact).map_err(self.io("take over the artifact of an earlier build"))?;
        let Some(Stored { mut record, log }) = stored else { return Ok(None) };
        record.artifact.check(artifact)?;
        fs::write(self.folder.join(BUILD_LOG), log).map_err(self.io("write the log of the build"))?;
        record.taken_over = true;
        record.revision = self.checkout.pinned().clone();
        Ok(Some(Built { artifact: artifact.to_owned(), record }))
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = self.builder.recipe.arguments();
        let jobs = self.builder.jobs.map(|jobs| ["--jobs".to_owned(), jobs.to_string()]);
        arguments.extend(jobs.into_iter().flatten());
        arguments
    }

    fn cargo_build(&self) -> Result<(Finished, Vec<Message>), BuildError> {
        let commit = self.commit;
        let lock = self.builder.node_lock.as_ref();
        let lock = lock.map(|directory| NodeLock::shared(directory, &self.builder.cancel)).transpose();
        let _lock = lock.map_err(|source| match source {
            LockError::Cancelled { .. } => BuildError::Cancelled { commit },
            source => BuildError::NodeLock { commit, source: Box::new(source) },
        })?;
        let arguments = self.arguments().into_iter().map(OsString::from).collect();
        let ran = self.run("cargo-build", &self.builder.cargo, arguments, self.builder.time_limit);
        self.write_log().map_err(self.io("write the log of the build"))?;
        let ran = ran?;
        let messages =
            messages::read(&ran.stdout).map_err(|(line, error)| self.output("cargo-build", line, error))?;
        Ok((ran.finished, messages))
    }

    fn write_log(&self) -> io::Result<()> {
        let stderr = self.folder.join("cargo-build.stderr");
        // A cargo that could not be started has said nothing.
        let said = if stderr.is_file() { fs::read(stderr)? } else { Vec::new() };
        fs::write(self.folder.join(BUILD_LOG), self.paths.hide(&String::from_utf8_lossy(&said)))
    }

    /// The executable of the recipe's target, and the features it was built with.
    fn executable<'m>(
        &self,
        package: &str,
        messages: &'m [Message],
    ) -> Result<(&'m Path, Vec<String>), BuildError> {
        let target = &self.builder.recipe.target;
        let is_it = |artifact: &&messages::Artifact| {
            artifact.package_id == package
                && artifact.target.name == target.name
                && artifact.target.kind.iter().any(|kind| kind == target.kind.name())
        };
        let artifacts = messages.iter().filter_map(|message| match message {
            Message::CompilerArtifact(artifact) => Some(artifact),
            _ => None,
        });
        let found: Vec<(&Path, &Vec<String>)> = artifacts
            .filter(is_it)
            .filter_map(|artifact| Some((artifact.executable.as_deref()?, &artifact.features)))
            .collect();
        let [(path, features)] = found[..] else {
            let (commit, count) = (self.commit, found.len());
            return Err(BuildError::Executables { commit, target: target.name.clone(), count });
        };
        let mut features = features.clone();
        features.sort();
        Ok((path, features))
    }

    fn count_units(&self, messages: &[Message]) -> Result<UnitCounts, BuildError> {
        let mut counts = UnitCounts::default();
        for message in messages {
            let Message::CompilerArtifact(artifact) = message else { continue };
            match (artifact.fresh, origin(&artifact.package_id)) {
                (false, _) => counts.compiled += 1,
                (true, Origin::Registry) => counts.reused += 1,
                (true, Origin::Other) => {
                    return Err(BuildError::Reused {
                        commit: self.commit,
                        package: artifact.package_id.clone(),
                    });
                }
            }
        }
        Ok(counts)
    }

    fn list_units(&self, messages: &[Message], origins: BTreeSet<PathBuf>) -> Result<(), BuildError> {
        let io = || self.io("list the compiled registry packages");
        let Some(registry) = self.cargo_home.as_ref().map(|home| home.join("registry/src")) else {
            return Ok(());
        };
        let mut units = Units::of(messages, &self.target, &registry).map_err(io())?;
        units.origins = origins;
        units.origins.insert(self.target.clone());
        let bytes = serde_json::to_vec_pretty(&units).map_err(io::Error::from).map_err(io())?;
        fs::write(self.folder.join(UNITS), bytes).map_err(io())
    }

    fn record(&self, finished: &Finished, made: Made) -> Result<BuildRecord, BuildError> {
        let command = std::iter::once("cargo".to_owned()).chain(self.arguments());
        let mut notes = self.config.notes.clone();
        if !made.artifact.host_paths.is_empty() {
            notes.push("the artifact holds host paths: its bytes depend on where it was built".to_owned());
        }
        if self.composed.recorded.contains_key("RUSTFLAGS") {
            notes.push(
                "RUSTFLAGS of the recipe replaces the rustflags of every configuration file".to_owned(),
            );
        }
        Ok(BuildRecord {
            schema: BUILD_SCHEMA.to_owned(),
            version: BUILD_VERSION,
            revision: self.checkout.pinned().clone(),
            patches: self.checkout.patches().to_vec(),
            submodules: self.checkout.submodules().to_vec(),
            lfs_pointers: self.checkout.lfs_pointers().to_vec(),
            recipe: self.builder.recipe.clone(),
            package_version: made.package_version,
            features: made.features,
            lockfile_sha256: made.lockfile_sha256,
            command: command.map(|argument| self.paths.hide(&argument)).collect(),
            environment: self.composed.recorded.clone(),
            environment_not_used: self.composed.dropped.clone(),
            config_files: self.config.files.clone(),
            path_mapping: self.mapping.clone(),
            toolchain: self.toolchain.clone(),
            taken_over: false,
            seeded: made.seeded,
            units: made.units,
            artifact: made.artifact,
            changed_sources: self.checkout.changes()?,
            notes,
            wall_ns: finished.wall_ns,
            cpu_ns: finished.user_ns.saturating_add(finished.system_ns),
            max_rss_bytes: finished.max_rss_bytes,
        })
    }
}

/// A folder as it was named, and as it is found behind links: a compiler may be told either.
fn spellings(folder: &Path) -> Vec<PathBuf> {
    let real = folder.canonicalize().ok().filter(|real| real != folder);
    std::iter::once(folder.to_owned()).chain(real).collect()
}

/// What came out of a build.
struct Made {
    package_version: String,
    features: Vec<String>,
    lockfile_sha256: Option<Sha256>,
    seeded: Option<Seeded>,
    units: UnitCounts,
    artifact: Artifact,
}

/// A program that ended well.
struct Ran {
    finished: Finished,
    stdout: PathBuf,
}

/// The line that says what went wrong: cargo and rustc begin it with `error`.
fn first_error(stderr: &Path) -> io::Result<String> {
    let mut last = String::new();
    for line in BufReader::new(fs::File::open(stderr)?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).trim().to_owned();
        if line.starts_with("error") {
            return Ok(line);
        }
        if !line.is_empty() {
            last = line;
        }
    }
    Ok(if last.is_empty() { "it says nothing".to_owned() } else { last })
}
