use std::path::Path;

use command_line::{Exit, Interrupt, MessageFormat, describe_error};
use cpu_placement::CancelToken;
use parity_campaign::{
    CampaignError, CampaignFile, Cause, Executor, JobId, Options, Report, resume_campaign, run_campaign,
    submit_campaign,
};

use crate::cli::{ExecutorArg, InitArgs, PlaceArgs, ResumeArgs, RunArgs};
use crate::console::{Console, Failure, exit_of};

pub(crate) fn run(args: &RunArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let file = read_campaign(&args.campaign)?;
    let mut options = options(&args.out, &args.place);
    options.executor = match args.executor {
        ExecutorArg::Local => Executor::Local,
        ExecutorArg::Slurm => Executor::Slurm,
    };
    options.profile = args.profile.profile.into();
    if args.detach {
        return detach(&file, args, &options, format);
    }
    let report = campaign(&file, &options, format)?;
    Ok(exit_of(&report))
}

fn detach(
    file: &CampaignFile,
    args: &RunArgs,
    options: &Options,
    format: MessageFormat,
) -> Result<Exit, Failure> {
    if options.executor != Executor::Slurm {
        return Err(Failure::new(Exit::Usage, "--detach needs --executor slurm"));
    }
    let detached = under_signals(format, |cancel, console| {
        submit_campaign(file, &args.campaign, options, cancel, console)
    })?;
    let text = match format {
        MessageFormat::Json => serde_json::to_string(&detached).map_err(anyhow::Error::from)? + "\n",
        MessageFormat::Human => {
            let rows: Vec<String> = detached.rows.iter().map(JobId::to_string).collect();
            let build = detached.build.map(|job| format!("build: job {job}; ")).unwrap_or_default();
            format!("{build}rows: jobs {}; then job {} takes them over\n", rows.join(", "), detached.merge)
        }
    };
    print_text(&text)?;
    Ok(Exit::Ok)
}

pub(crate) fn resume(args: &ResumeArgs, format: MessageFormat) -> Result<Exit, Failure> {
    let file = read_campaign(&args.campaign)?;
    let mut options = options(&args.dir, &args.place);
    options.profile = args.profile.profile.into();
    let report = under_signals(format, |cancel, console| resume_campaign(&file, &options, cancel, console))?;
    Console::new(format).finish(&report)?;
    Ok(exit_of(&report))
}

pub(crate) fn options(out: &Path, args: &PlaceArgs) -> Options {
    let mut options = Options::new(out);
    options.repository = args.repo.clone();
    options.trace = args.trace.clone();
    options.keep_work = args.keep_work;
    options.seed = args.seed.clone();
    options.artifacts = args.artifacts.clone();
    if let Some(directory) = &args.node_lock {
        options.node_lock = directory.clone();
    }
    if let Some(staging) = &args.staging {
        options.staging = staging.clone();
    }
    options
}

pub(crate) fn read_campaign(path: &Path) -> Result<CampaignFile, Failure> {
    CampaignFile::read(path).map_err(|error| {
        Failure::new(Exit::BadInput, format!("{}: {}", path.display(), describe_error(&error)))
    })
}

/// Runs a campaign under the signals of this process and prints its report.
pub(crate) fn campaign(
    file: &CampaignFile,
    options: &Options,
    format: MessageFormat,
) -> Result<Report, Failure> {
    let report = under_signals(format, |cancel, console| run_campaign(file, options, cancel, console))?;
    Console::new(format).finish(&report)?;
    Ok(report)
}

/// Runs something that a signal may interrupt.
pub(crate) fn under_signals<T>(
    format: MessageFormat,
    body: impl FnOnce(&CancelToken, &mut Console) -> Result<T, CampaignError>,
) -> Result<T, Failure> {
    let interrupt = Interrupt::install()
        .map_err(|error| Failure::new(Exit::HostUnfit, format!("install signal handlers: {error}")))?;
    let cancel = CancelToken::from_flag(interrupt.flag());
    let mut console = Console::new(format);
    match body(&cancel, &mut console) {
        Ok(result) => Ok(result),
        Err(error) if error.cause == Cause::Cancelled => {
            let exit = interrupt.exit().unwrap_or(Exit::Signal(2));
            Err(Failure::new(exit, describe_error(&error)))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn init(args: &InitArgs) -> Result<Exit, Failure> {
    let request = parity_campaign::InitRequest {
        repository: args.repo.clone(),
        baseline: args.baseline.clone(),
        candidate: args.candidate.clone(),
        trace: args.trace.clone(),
    };
    let text = parity_campaign::init(&request)
        .map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    match &args.output {
        Some(path) => write_new(path, &text)?,
        None => print_text(&text)?,
    }
    Ok(Exit::Ok)
}

/// Prints a text; a reader that has gone away is no error.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = command_line::Output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file that does not exist yet; none is left of which only a part could be written.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let written = std::fs::File::create_new(path).and_then(|mut file| {
        let whole = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        whole.or_else(|error| std::fs::remove_file(path).and(Err(error)))
    });
    written.map_err(|error| Failure::new(Exit::BadInput, format!("write {}: {error}", path.display())))
}
