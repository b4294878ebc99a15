use command_line::{Exit, describe_error};
use parity_campaign::{draft as draft_record, read_report};

use crate::cli::DraftArgs;
use crate::console::Failure;
use crate::run::{print_text, write_new};

pub(crate) fn draft(args: &DraftArgs) -> Result<Exit, Failure> {
    let report =
        read_report(&args.dir).map_err(|error| Failure::new(Exit::BadInput, describe_error(&error)))?;
    let Some(text) = draft_record(&report) else {
        let message = "no row has revisions that differ from each other and agree with themselves";
        return Err(Failure::new(Exit::BadInput, format!("{}: {message}", args.dir.display())));
    };
    match &args.output {
        Some(path) => write_new(path, &text)?,
        None => print_text(&text)?,
    }
    Ok(Exit::Ok)
}
